//! The header that is checked in is the one that the sources make.

use std::path::Path;

/// Regenerate it with `PLIMSOLL_BLESS=1 cargo test -p plimsoll-capi --test header`.
#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut builder = cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml is readable"));
    for file in ["failure", "tables", "reserve", "query"] {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut generated = Vec::new();
    builder.generate().expect("the sources can be read").write(&mut generated);
    let generated = String::from_utf8(generated).expect("a header is UTF-8");
    let path = root.join("include/plimsoll.h");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, &generated).expect("the header can be written");
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(checked_in == generated, "include/plimsoll.h is out of date; run this test with PLIMSOLL_BLESS=1");
}
