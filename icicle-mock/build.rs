//! Compiles the function that throws, where there is a C++ compiler. Without one nothing is thrown.

fn main() {
    println!("cargo:rerun-if-changed=src/thrower.cpp");
    println!("cargo:rustc-check-cfg=cfg(throws)");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++11").file("src/thrower.cpp");
    if build.try_compile("plimsoll_icicle_mock_thrower").is_ok() {
        println!("cargo:rustc-cfg=throws");
    }
}
