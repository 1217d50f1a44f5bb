//! Writing and reading proof files, and what a reader must refuse.

use super::*;
use std::fs;
use std::io::BufReader;

fn header(file_bytes: u64) -> Header {
    Header { file_bytes, digest: [0; 32], key: [7; 32], verifying_key: (0..200).collect() }
}

fn record(i: u8) -> Record {
    Record {
        blocks: 2,
        start: State([u32::from(i); 8]),
        end: State([u32::from(i) + 1; 8]),
        proof: [i ^ 0xa5; PROOF_BYTES],
    }
}

fn write(file_bytes: u64) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("letter.txt.proof.json");
    let mut writer = ProofWriter::create(&path, file_bytes, 200).unwrap();
    for i in 0..partition_count(file_bytes) {
        assert!(!path.exists(), "no file before it is complete");
        writer.push(&record(i as u8)).unwrap();
    }
    writer.finish(&Header { digest: [9; 32], ..header(file_bytes) }).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing but the proof is left");
    fs::read(&path).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Header, Vec<Record>), ReadError> {
    let mut reader = ProofReader::new(BufReader::new(bytes))?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    assert_eq!(reader.next_record()?, None, "the end stays the end");
    Ok((reader.header().clone(), records))
}

#[test]
fn what_is_written_is_read() {
    for file_bytes in [1, 119, 120, 1043] {
        let bytes = write(file_bytes);
        let (read_header, records) = read(&bytes).unwrap();
        assert_eq!(read_header, Header { digest: [9; 32], ..header(file_bytes) });
        assert_eq!(records, (0..partition_count(file_bytes)).map(|i| record(i as u8)).collect::<Vec<_>>());
        assert_eq!(bytes.len() as u64, read_header.file_length());
    }
}

#[test]
fn it_is_json() {
    let json: serde_json::Value = serde_json::from_slice(&write(300)).unwrap();
    assert_eq!(json["bytes"], 300);
    assert_eq!(json["setup"], SETUP);
    assert_eq!(json["partitions"].as_array().unwrap().len(), 3);
    assert_eq!(json["partitions"][1]["proof"].as_str().unwrap().len(), 2 * PROOF_BYTES);
}

/// The strict layout is what makes this true: no flipped bit is read as the same content.
#[test]
fn a_flipped_bit_is_never_read_as_the_same() {
    let bytes = write(200);
    let original = read(&bytes).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(content) = read(&flipped) {
            assert_ne!(content, original, "bit {bit}");
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    let bytes = write(200);
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "cut to {length} bytes");
    }
    assert!(matches!(read(&[&bytes[..], b" "].concat()), Err(ReadError { fault: Fault::TrailingData, .. })));
}

/// Replaces `from` by `to` once and expects an error with `message` in it.
fn check(from: &str, to: &str, message: &str) {
    let text = String::from_utf8(write(300)).unwrap();
    assert!(text.contains(from), "{from}");
    let error = read(text.replacen(from, to, 1).as_bytes()).expect_err(from).to_string();
    assert!(error.contains(message), "{from} -> {to}: {error}");
}

#[test]
fn other_spellings_are_refused() {
    let key = hex::encode([7; 32]);
    check("\"version\": 1", "\"version\": 2", "line 3: format version \"2\"");
    check("\"version\": 1", "\"version\": 01", "format version \"01\"");
    // What a stranger's file says is not for the terminal to obey.
    check("\"version\": 1", "\"version\": \u{1b}[2J", "format version \"\\u{1b}[2J\"");
    check("\"bytes\": 300", "\"bytes\": 0300", "line 7");
    check("\"bytes\": 300", "\"bytes\": +300", "line 7");
    check("\"bytes\": 300", "\"bytes\": 300.0", "line 7");
    check("\"bytes\": 300", "\"bytes\": 0", "empty file");
    check("\"bytes\": 300", "\"bytes\": 99999999999999999999", "line 7");
    check("\"bytes\": 300", "\"bytes\": 18446744073709551615", "no SHA-256 digest");
    check("\"bytes\": 300", "\"bytes\": 2305843009213693951", "line 14");
    check(&key, &format!("0x{key}"), "line 9");
    check("a5a5a5", "A5a5a5", "line 12");
    check("a5a5a5", "a5a5a", "line 12");
    check("  \"setup\"", "  \"setup\": \"insecure-dev\",\n  \"setup\"", "line 6");
    check("insecure-dev", "ceremony", "setup \"ceremony\", this plimsoll knows only \"insecure-dev\"");
    check("INSECURE", "SECURE", "line 6");
    check("\"blocks\":2", "\"blocks\":258", "line 12");
    check("\"blocks\":2", "\"blocks\": 2", "line 12");
    check("},\n    {", "}\n    {", "line 12");
}

#[test]
fn an_endless_line_is_not_held() {
    let endless = std::io::Read::chain("{\n  \"format\": \"".as_bytes(), std::io::repeat(b'a'));
    let error = ProofReader::new(BufReader::new(endless)).unwrap_err();
    assert!(matches!(error, ReadError { line: 2, fault: Fault::LineTooLong }), "{error}");
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = ProofWriter::create(&directory.path().join("x.proof.json"), 1000, 200).unwrap();
    writer.push(&record(0)).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_link_is_followed_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (target, link) = (directory.path().join("target"), directory.path().join("link"));
    fs::write(&target, "older").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let mut writer = ProofWriter::create(&link, 1, 200).unwrap();
    writer.push(&record(0)).unwrap();
    writer.finish(&header(1)).unwrap();
    assert!(link.is_symlink());
    assert_eq!(read(&fs::read(&target).unwrap()).unwrap().0, header(1));
}

#[test]
fn a_proof_takes_the_place_of_an_older_one_and_others_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.proof.json");
    fs::write(&path, "older").unwrap();
    let ordinary = fs::metadata(&path).unwrap().permissions().mode();
    let mut writer = ProofWriter::create(&path, 1, 200).unwrap();
    writer.push(&record(0)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"older", "until the new one is complete");
    writer.finish(&header(1)).unwrap();
    assert_eq!(read(&fs::read(&path).unwrap()).unwrap().0, header(1));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode(), ordinary);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn faults_of_the_target_name_it() {
    let directory = tempfile::tempdir().unwrap();
    for (path, fault) in
        [(directory.path().to_owned(), "directory"), (directory.path().join("no/such/x.json"), "must exist")]
    {
        let error = ProofWriter::create(&path, 10, 200).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains(fault), "{error}");
    }
}
