//! Compiles the kernels when the feature `cuda` is on, and says what is missing when it cannot.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cuda");
    #[cfg(feature = "cuda")]
    kernels::build();
}

#[cfg(feature = "cuda")]
mod kernels {
    use std::env;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// How to get a compiler, for whoever has none.
    const ADVICE: &str = "\
The feature `cuda` of plimsoll-cuda needs NVIDIA's nvcc, 12.0 or newer. Either install a CUDA toolkit and set NVCC (the
compiler) or CUDA_PATH (the toolkit's folder), or take nvcc from five Python wheels:

    python3 -m venv cuda-venv
    cuda-venv/bin/pip install nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 \\
        nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
    export CUDA_PATH=$(echo $PWD/cuda-venv/lib/python3*/site-packages/nvidia/cu13)

Without the feature the crate has everything but the kernels.";

    struct Toolkit {
        nvcc: PathBuf,
        root: PathBuf,
    }

    pub(super) fn build() {
        for variable in ["NVCC", "CUDA_PATH", "CUDA_HOME", "PLIMSOLL_CUDA_ARCH", "NVCC_CCBIN"] {
            println!("cargo:rerun-if-env-changed={variable}");
        }
        let toolkit = Toolkit::find().unwrap_or_else(|why| fail(&why));
        toolkit.check_version().unwrap_or_else(|why| fail(&why));
        let headers = |variable: &str| {
            env::var_os(variable)
                .map(PathBuf::from)
                .unwrap_or_else(|| fail(&format!("{variable} is not set by its crate")))
        };
        let (sppark, blst) = (headers("DEP_SPPARK_ROOT"), headers("DEP_BLST_C_SRC"));
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));

        // One process a file, because the two groups take half a minute each.
        let sources = ["runtime", "ntt", "sort", "msm_g1", "msm_g2"];
        let children = sources.map(|name| {
            let object = out.join(format!("{name}.o"));
            let mut command = toolkit.command();
            command.arg("-c").arg(format!("cuda/{name}.cu")).arg("-o").arg(&object);
            command.args(["-O3", "-std=c++17", "-DFEATURE_BLS12_381", "-DTAKE_RESPONSIBILITY_FOR_ERROR_MESSAGE"]);
            if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
                command.arg("-D__ADX__");
            }
            command.args(["-Xcompiler", "-fPIC,-Wno-unused-function,-Wno-subobject-linkage"]);
            for arch in env::var("PLIMSOLL_CUDA_ARCH").unwrap_or_else(|_| "90".to_owned()).split(',') {
                command.arg("-gencode").arg(format!("arch=compute_{arch},code=sm_{arch}"));
            }
            command.arg("-I").arg(&sppark).arg("-I").arg(&blst);
            let child =
                command.spawn().unwrap_or_else(|e| fail(&format!("{} cannot be run: {e}", toolkit.nvcc.display())));
            (name, object, child)
        });
        let mut library = cc::Build::new();
        for (name, object, mut child) in children {
            match child.wait() {
                Ok(status) if status.success() => {}
                outcome => fail(&format!("nvcc did not compile cuda/{name}.cu: {outcome:?}")),
            }
            library.object(object);
        }
        library.compile("plimsoll_cuda_kernels");

        for folder in ["lib64", "lib", "targets/x86_64-linux/lib"] {
            let folder = toolkit.root.join(folder);
            if folder.join("libcudart_static.a").exists() {
                println!("cargo:rustc-link-search=native={}", folder.display());
            }
        }
        println!("cargo:rustc-link-lib=static=cudart_static");
        for library in ["stdc++", "dl", "rt", "pthread"] {
            println!("cargo:rustc-link-lib={library}");
        }
    }

    impl Toolkit {
        fn find() -> Result<Self, String> {
            let from_folder = |folder: PathBuf| folder.join("bin/nvcc");
            let named = env::var_os("NVCC").map(PathBuf::from);
            let named = named.or_else(|| env::var_os("CUDA_PATH").map(PathBuf::from).map(from_folder));
            let named = named.or_else(|| env::var_os("CUDA_HOME").map(PathBuf::from).map(from_folder));
            let nvcc = match named {
                Some(nvcc) if nvcc.is_file() => nvcc,
                Some(nvcc) => {
                    return Err(format!("NVCC, CUDA_PATH or CUDA_HOME says {}, which is no file.", nvcc.display()));
                }
                None => on_path("nvcc")
                    .or_else(|| Some(PathBuf::from("/usr/local/cuda/bin/nvcc")).filter(|nvcc| nvcc.is_file()))
                    .ok_or("nvcc was not found: not in NVCC, CUDA_PATH, CUDA_HOME, PATH or /usr/local/cuda.")?,
            };
            let nvcc = nvcc.canonicalize().map_err(|e| format!("{}: {e}", nvcc.display()))?;
            let root = nvcc.parent().and_then(Path::parent).ok_or("nvcc lies in no toolkit.")?.to_owned();
            Ok(Self { nvcc, root })
        }

        fn command(&self) -> Command {
            let mut command = Command::new(&self.nvcc);
            if let Some(compiler) = env::var_os("NVCC_CCBIN") {
                command.arg("-ccbin").arg(compiler);
            }
            command
        }

        fn check_version(&self) -> Result<(), String> {
            let output = self.command().arg("--version").output();
            let output = output.map_err(|e| format!("{} cannot be run: {e}", self.nvcc.display()))?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let release =
                text.split("release ").nth(1).and_then(|rest| rest.split([',', '.']).next()?.parse::<u32>().ok());
            match release {
                Some(12..) => Ok(()),
                Some(old) => Err(format!("{} is of CUDA {old}.", self.nvcc.display())),
                None => Err(format!("{} does not say its version: {text}", self.nvcc.display())),
            }
        }
    }

    fn on_path(program: &str) -> Option<PathBuf> {
        env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.is_file())
    }

    fn fail(why: &str) -> ! {
        eprintln!("\nerror: {why}\n\n{ADVICE}\n");
        std::process::exit(1)
    }
}
