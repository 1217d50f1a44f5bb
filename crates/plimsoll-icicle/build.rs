//! Compiles the shield against C++ exceptions where there is a C++ compiler. Without one the crate works unshielded, and says so.

fn main() {
    println!("cargo:rerun-if-changed=shim/shield.cpp");
    println!("cargo:rustc-check-cfg=cfg(plimsoll_icicle_shielded)");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++11").warnings(true).file("shim/shield.cpp");
    match build.try_compile("plimsoll_icicle_shield") {
        Ok(()) => println!("cargo:rustc-cfg=plimsoll_icicle_shielded"),
        Err(error) => {
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            println!("cargo:warning=no C++ compiler, so ICICLE will be called without a shield: {first}");
        }
    }
}
