//! What can be seen with and without a device.

use super::*;

#[test]
fn a_device_that_is_not_there_is_an_error_that_says_so() {
    match device_count() {
        Ok(count) => {
            let expected = OpenError::NoSuchDevice { device: count, count };
            assert_eq!(properties(count), Err(expected.clone()));
            assert_eq!(CudaDriver::open(count, 1 << 20).map(drop), Err(expected));
        }
        Err(error) => {
            assert!(matches!(error, OpenError::NoDevice { .. } | OpenError::OldDriver { .. }), "{error:?}");
            // The error does not stick, and does not change.
            assert_eq!(properties(0), Err(error.clone()));
            assert_eq!(CudaDriver::open(0, 1 << 20).map(drop), Err(error));
        }
    }
}

#[test]
fn what_cuda_says_of_a_device_is_told_by_its_kind() {
    let card = Properties {
        name: "NVIDIA A100".to_owned(),
        major: 8,
        minor: 0,
        multiprocessors: 108,
        driver_version: 12040,
        runtime_version: 13000,
        total_bytes: 40 << 30,
        free_bytes: 39 << 30,
    };
    let error = |code| CudaError { code, name: "n".into(), text: "t".into(), operation: "o" };
    let wrong = OpenError::WrongArchitecture { name: card.name.clone(), major: 8, minor: 0 };
    assert_eq!(opening(error(209), Some(&card)), wrong);
    assert!(wrong.to_string().ends_with("PLIMSOLL_CUDA_ARCH=80"), "{wrong}");
    let old = OpenError::OldDriver { driver: "12.4".to_owned(), runtime: "13.0".to_owned() };
    assert_eq!(old_driver(Ok((12040, 13000))), old);
    assert!(matches!(old_driver(Ok((0, 13000))), OpenError::NoDevice { .. }), "there is none");
    assert!(matches!(opening(error(100), None), OpenError::NoDevice { .. }));
    assert_eq!(opening(error(1), Some(&card)), OpenError::Cuda(error(1)));
}
