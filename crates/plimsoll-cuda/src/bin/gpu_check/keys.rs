//! Two keys on a device that has room for one: each is loaded when it is wanted, for which the other goes.

use std::sync::Arc;

use plimsoll::Ledger;
use plimsoll::pipeline::Pacing;
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::device::{DeviceSizes, KeyLayout, Residence};
use plimsoll_groth16::prover::{Proved, Prover};
use plimsoll_groth16::r1cs::R1cs;

use crate::circuits::{Chain, Kind};
use crate::prove::{blinding, pool, real_key};
use crate::setting::{Failed, Setting};
use crate::{Outcome, number, say};

struct Statement {
    circuit: Chain,
    prover: Prover,
    expected: Proved,
}

pub(crate) fn run(args: &[String]) -> Outcome {
    const ROUNDS: u64 = 3;
    let log = number(args, 0, 16)?;
    let pool = pool()?;
    let statement = |kind| -> Result<Statement, Failed> {
        let circuit = Chain::new(log, kind);
        let r1cs = R1cs::from_circuit(circuit)?;
        let key = real_key(&r1cs, &pool)?;
        let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new()))?;
        let expected = pool.install(|| prover.prove(&Ledger::unlimited(), circuit, blinding()))?;
        Ok(Statement { circuit, prover, expected })
    };
    let (dense, bits) = (statement(Kind::Dense)?, statement(Kind::Boolean)?);
    let sizes = [&dense, &bits].map(|of| DeviceSizes::new(of.prover.r1cs(), of.prover.key().h.basis));
    let keys = sizes.map(|sizes| KeyLayout::new(&sizes).bytes.0);
    // What both keys would take, less a little.
    let memory = keys[0] + keys[1] - (1 << 20);
    let first = Setting::new(&dense.prover, &pool, memory, Some(Residence::Resident), Pacing::Auto)?;
    let second = first.beside(&bits.prover, &pool, Residence::Resident)?;
    for _ in 0..ROUNDS {
        for (statement, setting) in [(&dense, &first), (&bits, &second)] {
            for proof in setting.pipeline.run_all((0..3).map(|i| (format!("{i}"), statement.circuit))) {
                let proved = proof.1?;
                if proved.proof != statement.expected.proof {
                    return Err("a proof differs from the processor's".into());
                }
            }
        }
    }
    let snapshot = first.ledger.snapshot();
    let loads: Vec<_> = snapshot.residencies.iter().map(|usage| (&*usage.name, usage.loads, usage.evictions)).collect();
    say(&format!(
        "{} MiB for keys of {} and {}; loads and evictions: {loads:?}",
        memory >> 20,
        keys[0] >> 20,
        keys[1] >> 20
    ));
    let of_keys = || loads.iter().filter(|usage| usage.0 == "proving key");
    if of_keys().map(|usage| usage.1).ne([ROUNDS, ROUNDS]) {
        return Err("each key is loaded once a round".into());
    }
    if of_keys().map(|usage| usage.2).sum::<u64>() != 2 * ROUNDS - 1 {
        return Err("all keys but the last have made room".into());
    }
    Ok(())
}
