use plimsoll_groth16::verify;

use super::*;

const PROOF: &[u8] = include_bytes!("../../tests/fixtures/proof.json");
const PUBLIC: &[u8] = include_bytes!("../../tests/fixtures/public.json");
const KEY: &[u8] = include_bytes!("../../tests/fixtures/verification_key.json");

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn what_snarkjs_proved_is_verified() {
    let key = VerificationKey::read(KEY).expect("sound").prepare();
    let (proof, inputs) = (read_proof(PROOF).expect("sound"), read_public(PUBLIC).expect("sound"));
    assert_eq!(verify(&key, &proof, &inputs), Ok(()));
    assert!(verify(&key, &proof, &[inputs[1], inputs[0]]).is_err());
}

#[test]
fn what_is_written_is_what_snarkjs_wrote() {
    assert_eq!(write_proof(&read_proof(PROOF).expect("sound")), text(PROOF));
    assert_eq!(write_public(&read_public(PUBLIC).expect("sound")), text(PUBLIC));
    let key = VerificationKey::read(KEY).expect("sound");
    assert_eq!(VerificationKey::read(key.write().as_bytes()), Ok(key));
    assert_eq!(write_public(&[]), "[]");
}

#[test]
fn each_fault_is_told() {
    let proof =
        |from: &str, to: &str| read_proof(text(PROOF).replacen(from, to, 1).as_bytes()).expect_err(to).to_string();
    assert!(proof("bls12381", "bn128").contains("BN254"));
    assert!(proof("groth16", "plonk").contains("plonk"));
    assert!(proof("pi_c", "pi_d").contains("form"));
    let x = read_proof(PROOF).expect("sound").a.to_uncompressed();
    let x = decimal::of_coordinate(&x[..48]);
    assert!(proof(&x, "7").contains("pi_a: not on the curve"));
    assert!(proof(&x, "-7").contains("pi_a: not a canonical encoding"));
    // Doubled digits are beyond the modulus.
    assert!(proof(&x, &format!("{x}0")).contains("pi_a: not a canonical encoding"));
    assert!(proof("\"1\"", "\"0\"").contains("pi_a: the point at infinity"));
    assert!(proof("\"1\"", "\"2\"").contains("pi_a: not a canonical encoding"));

    let mut other = read_proof(PROOF).expect("sound");
    other.a = crate::points::outside_subgroup();
    let message = read_proof(write_proof(&other).as_bytes()).expect_err("in another group").to_string();
    assert!(message.contains("pi_a: not in the subgroup"), "{message}");
    other.a = G1Affine::identity();
    let infinite = write_proof(&other);
    assert!(read_proof(infinite.as_bytes()).expect_err("infinite").to_string().contains("infinity"));
    let zeros = infinite.replacen("\"1\"", "\"0\"", 1).replacen("\"0\"\n ],", "\"1\"\n ],", 1);
    assert!(read_proof(zeros.as_bytes()).expect_err("no point").to_string().contains("pi_a: not on the curve"));

    let key = text(KEY).replacen("\"nPublic\": 2", "\"nPublic\": 18446744073709551615", 1);
    assert!(matches!(VerificationKey::read(key.as_bytes()), Err(JsonError::InputCount { points: 3, .. })));
    assert_eq!(read_public(b"[\"1\", \"x\"]"), Err(JsonError::Number { index: 1 }));
}
