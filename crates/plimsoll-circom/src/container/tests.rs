use super::*;

/// A file of these sections.
fn file(kind: Kind, version: u32, sections: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = kind.magic().to_vec();
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&(sections.len() as u32).to_le_bytes());
    for (id, contents) in sections {
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&(contents.len() as u64).to_le_bytes());
        bytes.extend_from_slice(contents);
    }
    bytes
}

fn error(bytes: &[u8]) -> ContainerError {
    Container::parse(bytes, Kind::R1cs).expect_err("damaged")
}

#[test]
fn sections_are_found_in_any_order() {
    let bytes = file(Kind::R1cs, 1, &[(2, b"constraints"), (1, b"header"), (9, b"")]);
    let container = Container::parse(&bytes, Kind::R1cs).expect("sound");
    let contents = |id| container.find(id, "x").expect("once").map(|range| &bytes[range]);
    assert_eq!(contents(1), Some(&b"header"[..]));
    assert_eq!(contents(2), Some(&b"constraints"[..]));
    assert_eq!(contents(9), Some(&b""[..]));
    assert_eq!(contents(3), None);
}

#[test]
fn every_cut_is_noticed() {
    let bytes = file(Kind::R1cs, 1, &[(1, b"header"), (2, b"")]);
    for len in 0..bytes.len() {
        let error = error(&bytes[..len]);
        let cut = matches!(error, ContainerError::Truncated { .. });
        assert!(if len < 4 { matches!(error, ContainerError::Magic { .. }) } else { cut }, "{len}: {error}");
    }
    let longer = [&bytes[..], b"!"].concat();
    assert_eq!(error(&longer), ContainerError::Trailing { extra: 1 });
}

#[test]
fn lengths_and_counts_that_lie_cost_nothing() {
    let mut bytes = file(Kind::R1cs, 1, &[(1, b"header")]);
    bytes[8..12].copy_from_slice(&SECTIONS_MAX.to_le_bytes());
    assert!(matches!(error(&bytes), ContainerError::Truncated { section: 1, .. }));
    // Empty sections would cost more as a table than in the file.
    for found in [SECTIONS_MAX + 1, u32::MAX] {
        bytes[8..12].copy_from_slice(&found.to_le_bytes());
        let expected = ContainerError::TooManySections { kind: Kind::R1cs, found, max: SECTIONS_MAX };
        assert_eq!(error(&bytes), expected);
    }
    let mut bytes = file(Kind::R1cs, 1, &[(1, b"header")]);
    for len in [7, u64::from(u32::MAX), u64::MAX - 11, u64::MAX] {
        bytes[16..24].copy_from_slice(&len.to_le_bytes());
        let expected = ContainerError::Truncated { section: 0, id: 1, needed: len, available: 6 };
        assert_eq!(error(&bytes), expected);
    }
}

#[test]
fn other_files_and_versions_are_named() {
    let text = |error: ContainerError| error.to_string();
    assert!(text(error(&file(Kind::Zkey, 1, &[]))).contains("not a r1cs file: it begins with \"zkey\""));
    assert!(text(error(b"\x89PN")).contains("begins with \"\\x89PN\""));
    assert!(text(error(b"")).contains("begins with nothing"));
    assert_eq!(error(&file(Kind::R1cs, 2, &[])), ContainerError::Version { kind: Kind::R1cs, found: 2, max: 1 });
    assert!(Container::parse(&file(Kind::Wtns, 2, &[]), Kind::Wtns).is_ok());
}

#[test]
fn a_section_that_is_there_twice_is_not_chosen_from() {
    let bytes = file(Kind::R1cs, 1, &[(1, b"a"), (1, b"b")]);
    let container = Container::parse(&bytes, Kind::R1cs).expect("sound");
    assert_eq!(container.find(1, "header"), Err(ContainerError::Repeated { id: 1, name: "header" }));
    let missing = container.require(2, "constraints", "compile it again").expect_err("missing").to_string();
    assert!(missing.contains("constraints") && missing.contains("compile it again"));
}
