//! The functions of ICICLE that are used, by name.
//!
//! Required ones are those without which nothing can be computed. A library that lacks one is none that this crate knows.
//! Optional ones are missing in some versions and forks; where one is, another way is gone.
//!
//! There is no function that tells a version. But nearly each release of v3 came with functions that the one before it has not,
//! whatever features it was built with: the newest of those [marks](MARKS) that a library has says what it is. One that has none of
//! them is v3.0 or older, whose layouts are others, and is refused before anything of it is called.

use std::mem::ManuallyDrop;

use libloading::os::unix::Library as Loaded;

use crate::abi::{
    AvailableMemory, Convert, CopyAsync, CreateExtension, CreateStream, DestroyExtension, DeviceCount, LoadBackend,
    Malloc, MemsetAsync, Msm, Nothing, Ntt, NttInitDomain, OfDevice, OfPointer, RegisteredDevices, SetInt, VecOp,
};
use crate::error::OpenError;

macro_rules! symbols {
    (
        required { $($field:ident: $type:ty = $name:literal,)+ }
        optional { $($o_field:ident: $o_type:ty = $o_name:literal,)+ }
    ) => {
        /// Addresses of ICICLE's functions.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Symbols {
            $(pub(crate) $field: $type,)+
            $(pub(crate) $o_field: Option<$o_type>,)+
        }

        impl Symbols {
            pub(crate) fn of(libraries: &[ManuallyDrop<Loaded>]) -> Result<Self, OpenError> {
                let mut missing: Vec<&'static str> = Vec::new();
                $(
                    // SAFETY: the type is that of ICICLE's header for this name.
                    let $field = unsafe { address::<$type>(libraries, $name) };
                    if $field.is_none() {
                        missing.push($name);
                    }
                )+
                let ($(Some($field),)+) = ($($field,)+) else {
                    return Err(lacking(&missing));
                };
                Ok(Self {
                    $($field,)+
                    // SAFETY: as above.
                    $($o_field: unsafe { address::<$o_type>(libraries, $o_name) },)+
                })
            }
        }
    };
}

symbols! {
    required {
        load_backend_from_env_or_default: Nothing = "icicle_load_backend_from_env_or_default",
        set_device: OfDevice = "icicle_set_device",
        malloc: Malloc = "icicle_malloc",
        free: OfPointer = "icicle_free",
        copy_to_device_async: CopyAsync = "icicle_copy_to_device_async",
        copy_to_host_async: CopyAsync = "icicle_copy_to_host_async",
        create_stream: CreateStream = "icicle_create_stream",
        destroy_stream: OfPointer = "icicle_destroy_stream",
        stream_synchronize: OfPointer = "icicle_stream_synchronize",
        ntt: Ntt = "bls12_381_ntt",
        ntt_init_domain: NttInitDomain = "bls12_381_ntt_init_domain",
        ntt_release_domain: Nothing = "bls12_381_ntt_release_domain",
        vector_mul: VecOp = "bls12_381_vector_mul",
        vector_sub: VecOp = "bls12_381_vector_sub",
        msm: Msm = "bls12_381_msm",
        g2_msm: Msm = "bls12_381_g2_msm",
        affine_convert_montgomery: Convert = "bls12_381_affine_convert_montgomery",
        g2_affine_convert_montgomery: Convert = "bls12_381_g2_affine_convert_montgomery",
    }
    optional {
        load_backend: LoadBackend = "icicle_load_backend",
        is_device_available: OfDevice = "icicle_is_device_available",
        get_registered_devices: RegisteredDevices = "icicle_get_registered_devices",
        get_device_count: DeviceCount = "icicle_get_device_count",
        get_available_memory: AvailableMemory = "icicle_get_available_memory",
        device_synchronize: Nothing = "icicle_device_synchronize",
        create_config_extension: CreateExtension = "create_config_extension",
        destroy_config_extension: DestroyExtension = "destroy_config_extension",
        config_extension_set_int: SetInt = "config_extension_set_int",
        memset_async: MemsetAsync = "icicle_memset_async",
        scalar_mul_vec: VecOp = "bls12_381_scalar_mul_vec",
    }
}

/// Functions that are never called, each with the release that it came with, oldest first. v3.9 has none that
/// v3.8 has not, and v3.5's own comes with its sumcheck alone.
const MARKS: [(&str, &str); 10] = [
    ("bls12_381_vector_sum", "v3.1"),
    ("bls12_381_ecadd", "v3.2"),
    ("bls12_381_execute_program", "v3.3"),
    ("icicle_set_default_device", "v3.4 or v3.5"),
    ("bls12_381_create_predefined_returning_value_program", "v3.5"),
    ("bls12_381_generate_program", "v3.6"),
    ("bls12_381_vector_inv", "v3.7"),
    ("bls12_381_is_on_curve", "v3.8 or v3.9"),
    ("bls12_381_g2_is_on_curve", "v3.8 or v3.9"),
    ("bls12_381_projective_eq", "v4.0"),
];

/// Which release has these functions.
pub(crate) fn recognise(has: impl Fn(&str) -> bool) -> Result<&'static str, OpenError> {
    let newest = MARKS.iter().rev().find(|(name, _)| has(name));
    newest.map(|(_, release)| *release).ok_or_else(|| OpenError::UnknownVersion {
        found: "it has no function of those that came with v3.1 and after, so it is v3.0 or older".to_owned(),
    })
}

/// Whether some library has a function of this name.
pub(crate) fn has(libraries: &[ManuallyDrop<Loaded>], name: &str) -> bool {
    // SAFETY: the address is not used.
    unsafe { address::<Nothing>(libraries, name) }.is_some()
}

/// The address of a function, in whichever library has it.
///
/// # Safety
///
/// `F` is a function pointer of the type that this name has.
unsafe fn address<F: Copy>(libraries: &[ManuallyDrop<Loaded>], name: &str) -> Option<F> {
    // SAFETY: as the caller says. The library is never closed, so the address stays good.
    libraries.iter().find_map(|library| unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol))
}

fn lacking(missing: &[&str]) -> OpenError {
    let found = match missing {
        [one] => format!("it has no function {one}"),
        [first, rest @ ..] => format!("it has no function {first}, and {} others are missing", rest.len()),
        [] => unreachable!("called where one is missing"),
    };
    OpenError::UnknownVersion { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_function_tells_the_release() {
        for (index, (_, release)) in MARKS.iter().enumerate() {
            let there = &MARKS[..=index];
            assert_eq!(recognise(|name| there.iter().any(|mark| mark.0 == name)), Ok(*release));
        }
        // A fork that lacks some in between.
        assert_eq!(recognise(|name| name == "bls12_381_vector_inv"), Ok("v3.7"));
    }

    #[test]
    fn a_library_without_any_is_refused() {
        let error = recognise(|_| false).expect_err("v3.0");
        assert!(error.to_string().contains("v3.0 or older"), "{error}");
    }
}
