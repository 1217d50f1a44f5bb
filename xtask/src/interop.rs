//! `cargo xtask interop`: circom and snarkjs, the real ones, against ours.
//!
//! Installs the pinned packages of `xtask/interop/` (circom as WebAssembly, snarkjs, circomlib) into the target directory, compiles
//! real circuits for BLS12-381, makes keys with snarkjs, and lets each side verify what the other has proved. Nothing is
//! skipped: without node or the registry it fails, and says so.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{features, sh};

/// The domain of the circuit whose key comes from a ceremony of snarkjs's own. It takes snarkjs a minute at this size, and twice
/// that for each step up; the powers of the others come from `plimsoll setup powers`.
const CEREMONY_POWER: u32 = 10;

/// A circuit and the inputs of its witnesses.
struct Circuit {
    name: &'static str,
    /// Its domain, as a power of two, with room for what snarkjs adds.
    power: u32,
    inputs: fn(u64) -> Value,
}

const CIRCUITS: [Circuit; 3] = [
    Circuit { name: "poseidon", power: CEREMONY_POWER, inputs: |seed| json!({"in": [seed.to_string(), "2"]}) },
    Circuit { name: "merkle", power: 12, inputs: merkle },
    // One block.
    Circuit { name: "sha256", power: 15, inputs: |seed| json!({"in": bits(&message(seed))}) },
];

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only what fits into integration, after the tests: Poseidon and a Merkle proof, with powers that need no ceremony.
    #[arg(long)]
    pub(crate) quick: bool,
}

/// Witnesses that are proved in one batch.
const WITNESSES: u64 = 2;

/// Each circuit, to and fro.
pub(crate) fn run(args: &Args) -> Result<()> {
    let peers = Peers::install()?;
    let plimsoll = build(args.quick)?;
    peers.refuses_other_curve(&plimsoll)?;
    if !args.quick {
        timed("a ceremony of snarkjs's", || peers.ceremony())?;
    }
    for circuit in CIRCUITS.iter().filter(|circuit| !args.quick || circuit.name != "sha256") {
        let by_ceremony = circuit.power == CEREMONY_POWER && !args.quick;
        let what = format!("{}: both sides accept each other's proofs", circuit.name);
        timed(&what, || peers.check(circuit, by_ceremony, &plimsoll))
            .with_context(|| format!("circuit `{}`", circuit.name))?;
    }
    Ok(())
}

fn timed(what: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    run()?;
    println!("{what}, {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The command. In integration it is there already: the tests need it, and to ask for them costs less than a build without.
fn build(as_the_tests: bool) -> Result<PathBuf> {
    if as_the_tests {
        let mut tests = sh::cargo("test --quiet --no-run --workspace --lib --bins --tests --features");
        sh::run(tests.arg(features::light()?))?;
    } else {
        sh::run(&mut sh::cargo("build --quiet -p plimsoll-cli"))?;
    }
    Ok(std::env::current_dir()?.join(sh::target_dir()).join("debug/plimsoll"))
}

/// The installed packages, and a folder to work in.
struct Peers {
    folder: PathBuf,
}

impl Peers {
    fn install() -> Result<Self> {
        for (program, package) in [("node", "nodejs"), ("npm", "npm")] {
            ensure!(
                sh::is_installed(program, &["--version"]),
                "interop needs {program}, which is not installed (Debian: apt-get install {package})"
            );
        }
        let folder = std::env::current_dir()?.join(sh::target_dir()).join("interop");
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir("xtask/interop")? {
            let path = entry?.path();
            fs::copy(&path, folder.join(path.file_name().context("a file has a name")?))?;
        }
        // The lock file pins every package by its hash.
        let mut npm = Command::new("npm");
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]).current_dir(&folder);
        sh::run(&mut npm).context(
            "the pinned circom2, snarkjs and circomlib cannot be installed: is the npm registry reachable? Interop is not skipped",
        )?;
        Ok(Self { folder })
    }

    fn node(&self, script: &str, args: &[&str]) -> Command {
        let mut command = Command::new("node");
        command.arg(script).args(args).current_dir(&self.folder).stdout(Stdio::null());
        command
    }

    fn snarkjs(&self, args: &str) -> Command {
        self.node("node_modules/snarkjs/build/cli.cjs", &args.split_whitespace().collect::<Vec<_>>())
    }

    /// snarkjs ends well also where it has made nothing.
    fn snarkjs_makes(&self, file: &str, args: &str) -> Result<()> {
        let _ = fs::remove_file(self.folder.join(file));
        let mut command = self.snarkjs(args);
        eprintln!("$ {command:?}");
        let output = command.stdout(Stdio::piped()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success() && self.folder.join(file).exists(), "snarkjs has not made {file}: {said}");
        Ok(())
    }

    fn circom(&self, name: &str, prime: &str, out: &str) -> Result<()> {
        fs::create_dir_all(self.folder.join(out))?;
        let args = format!("{name}.circom --r1cs --wasm --sym --prime {prime} -o {out} -l node_modules");
        sh::run(&mut self.node("node_modules/circom2/cli.js", &args.split_whitespace().collect::<Vec<_>>()))
    }

    /// circom's default curve is another one, which must be named.
    fn refuses_other_curve(&self, plimsoll: &Path) -> Result<()> {
        self.circom("poseidon", "bn128", "bn128")?;
        let inspect =
            Command::new(plimsoll).args(["inspect", "bn128/poseidon.r1cs"]).current_dir(&self.folder).output()?;
        let text = String::from_utf8_lossy(&inspect.stderr);
        ensure!(!inspect.status.success() && text.contains("BN254"), "a file of BN254 is not named as such: {text}");
        Ok(())
    }

    /// Powers of tau by snarkjs from beginning to end.
    fn ceremony(&self) -> Result<()> {
        if self.folder.join("ceremony.ptau").exists() {
            return Ok(());
        }
        self.snarkjs_makes("new.ptau", &format!("powersoftau new bls12-381 {CEREMONY_POWER} new.ptau"))?;
        self.snarkjs_makes("contributed.ptau", "powersoftau contribute new.ptau contributed.ptau --name=test -e=test")?;
        self.snarkjs_makes("prepared.ptau", "powersoftau prepare phase2 contributed.ptau prepared.ptau")?;
        // Its name says that it is whole.
        Ok(fs::rename(self.folder.join("prepared.ptau"), self.folder.join("ceremony.ptau"))?)
    }

    fn check(&self, circuit: &Circuit, by_ceremony: bool, plimsoll: &Path) -> Result<()> {
        let name = circuit.name;
        let key = format!("{name}.zkey");
        self.circom(name, "bls12381", ".")?;
        if by_ceremony {
            let first = format!("{name}.0.zkey");
            self.snarkjs_makes(&first, &format!("groth16 setup {name}.r1cs ceremony.ptau {first}"))?;
            self.snarkjs_makes(&key, &format!("zkey contribute {first} {key} --name=test -e=test"))?;
        } else {
            // Powers whose secret this program has drawn: for tests.
            let mut powers = Command::new(plimsoll);
            powers.args(["setup", "powers", "--power", &circuit.power.to_string(), "--output", "dev.ptau"]);
            sh::run(powers.current_dir(&self.folder).stdout(Stdio::null()))?;
            self.snarkjs_makes(&key, &format!("groth16 setup {name}.r1cs dev.ptau {key}"))?;
        }
        sh::run(&mut self.snarkjs(&format!("zkey export verificationkey {name}.zkey {name}.vkey.json")))?;
        let mut files = Vec::new();
        for seed in 0..WITNESSES {
            let (input, witness) = (format!("{name}.{seed}.json"), format!("{name}-{seed}.wtns"));
            fs::write(self.folder.join(&input), (circuit.inputs)(seed).to_string())?;
            let script = format!("{name}_js/generate_witness.js");
            sh::run(&mut self.node(&script, &[&format!("{name}_js/{name}.wasm"), &input, &witness]))?;
            files.push(witness);
        }
        let ours = |args: &str| {
            let mut command = Command::new(plimsoll);
            command.args(args.split_whitespace()).current_dir(&self.folder).stdout(Stdio::null());
            // A cache of its own, so that every run checks the key's points.
            command.env("XDG_CACHE_HOME", self.folder.join("cache"));
            command
        };
        let _ = fs::remove_dir_all(self.folder.join("cache"));

        // Ours, verified by snarkjs: with the constraints and without.
        let batch = files.join(" ");
        sh::run(&mut ours(&format!("setup check {name}.zkey --r1cs {name}.r1cs")))?;
        sh::run(&mut ours(&format!("prove --zkey {name}.zkey --wtns {batch} --check --output ours")))?;
        let mut publics = Vec::new();
        for seed in 0..WITNESSES {
            let (public, proof) = (format!("ours/{name}-{seed}.public.json"), format!("ours/{name}-{seed}.proof.json"));
            sh::run(&mut self.snarkjs(&format!("groth16 verify {name}.vkey.json {public} {proof}")))?;
            publics.push(public);
        }
        sh::run(&mut ours(&format!("prove --zkey {name}.zkey --wtns {} --output single", files[0])))?;
        sh::run(&mut self.snarkjs(&format!("groth16 verify {name}.vkey.json single/public.json single/proof.json")))?;
        // The other witness's inputs: a verifier that accepts them looks at nothing.
        let mut wrong = self.snarkjs(&format!("groth16 verify {name}.vkey.json {} single/proof.json", publics[1]));
        ensure!(!wrong.status()?.success(), "snarkjs verifies a proof with another's public inputs");

        // snarkjs's, verified by ours, with its key and with the one that we export.
        sh::run(
            &mut self.snarkjs(&format!("groth16 prove {name}.zkey {} theirs.proof.json theirs.public.json", files[1])),
        )?;
        sh::run(&mut ours(&format!("setup convert {name}.zkey --to verification-key --output ours/{name}.vkey.json")))?;
        for key in [format!("{name}.vkey.json"), format!("ours/{name}.vkey.json")] {
            sh::run(&mut ours(&format!("verify --vkey {key} --public theirs.public.json --proof theirs.proof.json")))?;
        }
        sh::run(
            &mut self.snarkjs(&format!("groth16 verify ours/{name}.vkey.json {} ours/{name}-0.proof.json", publics[0])),
        )?;
        let mut wrong =
            ours(&format!("verify --vkey {name}.vkey.json --public {} --proof theirs.proof.json", publics[0]));
        ensure!(!wrong.stderr(Stdio::null()).status()?.success(), "we verify a proof with another's public inputs");
        if name == "sha256" {
            self.compare_digest(&publics[1])?;
            self.stays_under_the_smallest_line(&ours(&format!(
                "prove --zkey {name}.zkey --wtns {batch} --output tight --json"
            )))?;
        }
        Ok(())
    }

    /// Proves with the smallest budget that is not refused, and looks at what the process held.
    fn stays_under_the_smallest_line(&self, prove: &Command) -> Result<()> {
        let mut line = "1MiB".to_owned();
        // The budget is asked for twice: for the matrices, and then for the key and a proof.
        for _ in 0..3 {
            let mut command = Command::new(prove.get_program());
            command.args(prove.get_args()).args(["--memory", &line]).current_dir(&self.folder);
            let output = command.env("XDG_CACHE_HOME", self.folder.join("cache")).output()?;
            if output.status.success() {
                let report: Value = serde_json::from_slice(&output.stdout).context("a report in JSON")?;
                let (peak, limit) = (&report["memory"]["resident_peak_bytes"], &report["memory"]["budget_bytes"]);
                let (Some(peak), Some(limit)) = (peak.as_u64(), limit.as_u64()) else { bail!("no figures: {report}") };
                ensure!(peak <= limit, "the process held {peak} bytes of {limit}");
                println!("sha256: {peak} bytes held at most with the smallest budget of {line}");
                return Ok(());
            }
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let (_, smallest) =
                text.trim_end().rsplit_once("--memory ").context("a refusal tells the smallest budget")?;
            line = smallest.split_whitespace().next().context("a size")?.to_owned();
        }
        bail!("even the budget that was said to do is refused: {line}")
    }

    /// The public inputs are the digest that everybody else computes.
    fn compare_digest(&self, public: &str) -> Result<()> {
        let found: Vec<String> = serde_json::from_str(&fs::read_to_string(self.folder.join(public))?)?;
        fs::write(self.folder.join("message"), message(1))?;
        let sum =
            Command::new("sha256sum").arg(self.folder.join("message")).output().context("cannot start sha256sum")?;
        let digits = String::from_utf8_lossy(&sum.stdout);
        let digest = digits.as_bytes().get(..64).context("sha256sum prints a digest")?;
        let nibble = |digit: &u8| char::from(*digit).to_digit(16).context("hex");
        let mut expected = Vec::new();
        for pair in digest.chunks_exact(2) {
            expected.push((nibble(&pair[0])? << 4 | nibble(&pair[1])?) as u8);
        }
        if found != bits(&expected) {
            bail!("the circuit's digest is not that of sha256sum");
        }
        Ok(())
    }
}

/// 55 bytes.
fn message(seed: u64) -> Vec<u8> {
    (0..55).map(|i| (i * 7 + seed * 31) as u8).collect()
}

/// As the circuit takes them: the highest bit of each byte first.
fn bits(bytes: &[u8]) -> Vec<String> {
    bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| (byte >> bit & 1).to_string())).collect()
}

fn merkle(seed: u64) -> Value {
    let siblings: Vec<String> = (0..4).map(|level| (seed * 100 + level).to_string()).collect();
    json!({"leaf": "7", "position": (seed * 7 % 16).to_string(), "siblings": siblings})
}
