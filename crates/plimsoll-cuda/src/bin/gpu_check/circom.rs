//! Keys and witnesses of circom's: proofs made with them on the device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use blstrs::Scalar;
use plimsoll::{Bytes, Grant, Ledger};
use plimsoll_circom::map::MappedFile;
use plimsoll_circom::wtns::{WINDOW_BYTES, WtnsFile};
use plimsoll_circom::zkey::ZkeyFile;
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::device::Residence;
use plimsoll_groth16::prover::{ProveError, Prover, Witness};
use plimsoll_groth16::{PreparedVerifyingKey, verify};

use crate::cards::Fleet;
use crate::prove::{blinding, pool};
use crate::setting::Failed;
use crate::{Outcome, arena_bytes, say};

/// `circom ZKEY WTNS`: the same r and s on the processor and on the device, the key resident and its points passing through.
pub(crate) fn run(args: &[String]) -> Outcome {
    let [zkey, wtns] = args else { return Err("name a key and a witness".into()) };
    let pool = pool()?;
    let map = MappedFile::open(Path::new(zkey))?;
    let file = ZkeyFile::parse_in(&map, &map)?;
    let shape = file.shape(None, &map)?;
    let (key, _) = pool.install(|| file.read_key(&shape, &map))?;
    let prover = Prover::new(Arc::new(shape), Arc::new(key), Arc::new(Cpu::new()))?
        .with_synthesis_scratch(Bytes(WINDOW_BYTES as u64));
    let r1cs = prover.r1cs();
    let sizes = format!(
        "{} constraints, {} variables, domain of {}",
        r1cs.constraints(),
        r1cs.variables(),
        r1cs.domain().size()
    );
    let begin = |prover: &Prover, grant: &mut Grant, path: PathBuf| Ok((read(prover, grant, &path)?, ()));
    let end = |prover: &Prover, openings, ()| Ok(prover.assemble(openings, blinding()));
    let on_processor = prover.pipeline(&Ledger::unlimited(), &pool, begin, end)?;
    let expected = on_processor.submit("processor", PathBuf::from(wtns))?.wait()?;
    let vk = PreparedVerifyingKey::new(&prover.key().vk);
    verify(&vk, &expected.proof, &expected.public_inputs).map_err(|error| format!("the processor's: {error}"))?;
    for residence in [Residence::Resident, Residence::Streamed] {
        let fleet = Fleet::with(&prover, 1, arena_bytes(8 << 10), residence)?;
        let pipeline = fleet.pipeline_from(&pool, begin)?;
        for proof in pipeline.run_all((0..4).map(|i| (format!("{i}"), PathBuf::from(wtns)))).in_order() {
            let proved = proof.1?;
            if (proved.proof, &proved.public_inputs[..]) != (expected.proof, &expected.public_inputs[..]) {
                return Err(format!("{residence:?}: proof {} differs from the processor's", proof.0).into());
            }
            verify(&vk, &proved.proof, &proved.public_inputs)?;
        }
    }
    say(&format!("{zkey}: {sizes}: verified and equal"));
    Ok(())
}

fn read(prover: &Prover, grant: &mut Grant, path: &Path) -> Result<Witness, ProveError> {
    prover.assign(grant, |inputs, aux| {
        let told = |source: Failed| ProveError::Assignment { source: source.to_string().into() };
        fill(path, inputs, aux).map_err(told)
    })
}

/// The constant one comes first in the file.
fn fill(path: &Path, inputs: &mut [Scalar], aux: &mut [Scalar]) -> Result<(), Failed> {
    let bytes = MappedFile::open(path)?;
    let file = WtnsFile::parse_in(&bytes, &bytes)?;
    if file.len() != 1 + inputs.len() + aux.len() {
        return Err(format!("{} values for {} variables", file.len(), 1 + inputs.len() + aux.len()).into());
    }
    file.read(1, inputs)?;
    Ok(file.read(1 + inputs.len(), aux)?)
}
