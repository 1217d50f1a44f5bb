use std::path::PathBuf;

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-circom/tests/fixtures").join(name)
}

fn facts(name: &str) -> Value {
    let found = inspect(&fixture(name), None).unwrap_or_else(|failure| panic!("{name}: {}", failure.message));
    found.json()
}

#[test]
fn every_format_is_known_by_what_is_in_it() {
    let zkey = facts("small.zkey");
    assert_eq!((&zkey["facts"]["domain"], &zkey["facts"]["signals"]), (&json!(8), &json!(7)));
    assert_eq!(zkey["sections"].as_array().map(Vec::len), Some(10));
    assert_eq!(facts("small.r1cs")["facts"]["constraints"], 4);
    assert_eq!(facts("small.wtns")["facts"]["values"], 7);
    assert!(facts("proof.json")["format"].as_str().unwrap().contains("proof.json"));
    assert_eq!(facts("public.json")["facts"]["inputs"], 2);
    assert_eq!(facts("verification_key.json")["facts"]["public_signals"], 2);
}

#[test]
fn nothing_of_a_witness_is_told() {
    // 243 = 3^5 is in it.
    let text = facts("small.wtns").to_string();
    assert!(!text.contains("243"), "{text}");
}

#[test]
fn what_is_nothing_known_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let message = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let failure = inspect(&path, None).unwrap_err();
        assert_eq!(failure.exit, Exit::BadInput);
        assert!(failure.message.contains("file: "), "{}", failure.message);
        failure.message
    };
    assert!(message(b"").contains("empty"));
    assert!(message(b"{\"a\": 1}").contains("neither a proof"));
    assert!(message(b"hello, world").contains("none of the known formats"));
    assert!(message(&[7; 192]).contains("as long as a proof"));
    assert!(message(b"zkey\x01\0\0\0").contains("cut short"));
}

#[test]
fn contents_are_shown_by_their_names_and_secrets_are_not() {
    let contents = |name: &str, most| inspect(&fixture(name), Some(most)).map(|found| found.contents);
    let line = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let lines = contents("small.r1cs", 2).unwrap();
    assert_eq!(lines.len(), 4 + 2);
    assert_eq!(lines[5], line("constraint 1", "(-main.x2) * (main.x2) = -main.x4"));
    let lines = contents("small.zkey", 5).unwrap();
    assert_eq!(lines[..2].iter().map(|(_, count)| count.parse::<u64>().unwrap()).sum::<u64>(), 11);
    assert_eq!(lines.last().unwrap().0, "contribution 1");
    let refused = contents("small.wtns", 1).unwrap_err().message;
    assert!(refused.contains("secrets"), "{refused}");
}

/// The text of a line.
fn text<'a>(found: &'a Inspection, name: &str) -> &'a str {
    let line = found.contents.iter().find(|(known, _)| known == name);
    &line.unwrap_or_else(|| panic!("{name}: {:?}", found.contents)).1
}

#[test]
fn points_of_keys_proofs_and_powers_are_shown_and_are_the_same_in_every_format() {
    use blstrs::{G1Affine, Scalar};
    use group::prime::PrimeCurveAffine;
    let generator = hex::encode(G1Affine::generator().to_compressed());
    let show = |path: &Path, most| inspect(path, Some(most)).unwrap_or_else(|failure| panic!("{}", failure.message));

    let (zkey, json) = (show(&fixture("small.zkey"), 9), show(&fixture("verification_key.json"), 9));
    for name in ["alpha in G1", "beta in G2", "gamma in G2", "delta in G2", "IC 0", "IC 1", "IC 2"] {
        assert_eq!(text(&zkey, name), text(&json, name), "{name}");
    }
    assert_eq!(text(&show(&fixture("public.json"), 1), "input 0"), "276");
    assert_eq!(show(&fixture("public.json"), 1).contents.len(), 1);

    // The same proof in both encodings.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let of_snarkjs = read_proof(&std::fs::read(fixture("proof.json")).unwrap()).unwrap();
    std::fs::write(&path, of_snarkjs.to_bytes()).unwrap();
    assert_eq!(show(&path, 1).contents, show(&fixture("proof.json"), 1).contents);
    assert_eq!(show(&path, 1).contents.iter().map(|(_, text)| text.len()).collect::<Vec<_>>(), [96, 192, 96]);

    let converted = plimsoll_circom::zkey::ZkeyFile::parse(&std::fs::read(fixture("small.zkey")).unwrap())
        .and_then(|file| file.read_verifying_key(&plimsoll_circom::map::InMemory));
    let mut file = Vec::new();
    converted.unwrap().write(&mut file).unwrap();
    std::fs::write(&path, &file).unwrap();
    let verifying = show(&path, 2);
    for name in ["alpha in G1", "beta in G1", "delta in G1", "beta in G2", "gamma in G2", "delta in G2"] {
        assert_eq!(text(&verifying, name), text(&zkey, name), "{name}");
    }
    assert_eq!((text(&verifying, "ic 1"), verifying.contents.len()), (text(&zkey, "IC 1"), 6 + 2));

    let mut secret = 41_u64;
    let mut random = || {
        secret += 1;
        Scalar::from(secret)
    };
    let mut file = Vec::new();
    plimsoll_circom::ptau::insecure::write_powers(2, &mut random, &mut file).unwrap();
    std::fs::write(&path, &file).unwrap();
    let powers = show(&path, 3);
    assert_eq!(text(&powers, "tau^0"), generator);
    assert_eq!(powers.contents.len(), 4 * 3, "and nobody contributed");
    assert!(powers.contents.iter().all(|(_, text)| text.len() == 96 || text.len() == 192));
}
