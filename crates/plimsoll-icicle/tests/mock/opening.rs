//! What is found, what is refused, and how it is told.

use std::fs;

use plimsoll::{Budget, Bytes, Ledger};
use plimsoll_icicle::error::{CallError, Fault, OpenError};
use plimsoll_icicle::{Device, IS_SHIELDED, Library, Which};

use crate::support::Mock;

#[test]
fn a_device_says_what_it_is_and_where_it_is_from() {
    let mock = Mock::new();
    let device = mock.device("MOCK").expect("it computes rightly");
    let text = device.describe();
    for part in ["MOCK:0", "1.00 GiB", "ICICLE v4.0", mock.folder().to_str().expect("a path")] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(text.contains("unshielded"), !IS_SHIELDED, "{text}");
}

#[test]
fn without_a_name_it_is_the_first_that_is_not_the_processor() {
    let mock = Mock::new();
    let device = Device::open(None, &mock.options()).expect("there is one");
    assert_eq!(device.name().to_string(), "MOCK:0");
    let mock = Mock::without(&["icicle_get_registered_devices"]);
    let device = Device::open(None, &mock.options()).expect("the processor is always there");
    assert_eq!(device.name().to_string(), "CPU:0");
}

#[test]
fn no_library_is_not_installed_with_the_place() {
    let mock = Mock::new();
    fs::remove_file(mock.folder().join("libicicle_device.so")).expect("it was there");
    let error = Library::find(Some(mock.folder())).expect_err("it is gone");
    let OpenError::NotInstalled { tried } = &error else { panic!("{error}") };
    assert_eq!(tried[0].folder.as_deref(), Some(mock.folder()));
}

#[test]
fn a_library_that_cannot_be_opened_is_told_apart() {
    let mock = Mock::new();
    let field = mock.folder().join("libicicle_field_bls12_381.so");
    fs::remove_file(&field).expect("it was there");
    fs::write(&field, b"no library").expect("room");
    let error = Library::find(Some(mock.folder())).expect_err("it is none");
    assert!(matches!(&error, OpenError::Unusable { library, .. } if library.contains("field")), "{error}");
}

#[test]
fn a_library_without_what_every_version_has_is_refused_by_name() {
    let mock = Mock::without(&["bls12_381_g2_msm"]);
    let error = mock.device("MOCK").expect_err("it cannot compute in G2");
    let OpenError::UnknownVersion { found } = &error else { panic!("{error}") };
    assert!(found.contains("bls12_381_g2_msm"), "{found}");
    assert!(error.to_string().contains("v3.1 to v4.0"), "{error}");
}

/// What came with the releases from v3.1 on, newest first.
const MARKS: [&str; 10] = [
    "bls12_381_projective_eq",
    "bls12_381_g2_is_on_curve",
    "bls12_381_is_on_curve",
    "bls12_381_vector_inv",
    "bls12_381_generate_program",
    "bls12_381_create_predefined_returning_value_program",
    "icicle_set_default_device",
    "bls12_381_execute_program",
    "bls12_381_ecadd",
    "bls12_381_vector_sum",
];

#[test]
fn a_release_is_told_by_what_came_with_it() {
    for (without, release) in
        [(0, "v4.0"), (1, "v3.8 or v3.9"), (3, "v3.7"), (5, "v3.5"), (6, "v3.4 or v3.5"), (9, "v3.1")]
    {
        let mock = Mock::without(&MARKS[..without]);
        let library = Library::find(Some(mock.folder())).expect("it is known");
        assert_eq!(library.version(), release);
    }
}

#[test]
fn a_release_of_before_v3_1_is_refused_before_it_is_called() {
    let mock = Mock::without(&MARKS);
    let error = mock.device("MOCK").expect_err("it reads other layouts");
    let OpenError::UnknownVersion { found } = &error else { panic!("{error}") };
    assert!(found.contains("v3.0 or older"), "{found}");
    assert_eq!((mock.get("calls:load"), mock.get("calls:set_device")), (0, 0));
}

#[test]
fn layouts_of_before_v3_1_under_another_name_are_not_trusted() {
    let mock = Mock::new();
    mock.set("layout", 30);
    let error = mock.device("MOCK").expect_err("it reads other layouts");
    let OpenError::Untrusted { what, .. } = &error else { panic!("{error}") };
    assert!(what.contains("before v3.1"), "{what}");
}

#[test]
fn there_is_no_such_device() {
    let mock = Mock::new();
    for name in ["MOCK:7", "NOPE", "NOPE:1", "CPU:5"] {
        let error = mock.device(name).expect_err("there is none");
        let OpenError::NoSuchDevice { wanted, registered, .. } = &error else { panic!("{name}: {error}") };
        assert!(wanted.starts_with(name), "{error}");
        assert_eq!(registered, "CPU,MOCK");
    }
    mock.assert_used_well();
}

#[test]
fn a_device_for_which_setting_throws_is_no_such_device() {
    if !IS_SHIELDED {
        return;
    }
    let mock = Mock::without(&["icicle_is_device_available"]);
    let error = mock.device("NOPE").expect_err("there is none");
    let OpenError::NoSuchDevice { message, .. } = &error else { panic!("{error}") };
    assert!(message.contains("no backend for the device"), "{message}");
}

#[test]
fn a_licence_that_does_not_hold_is_told() {
    let mock = Mock::new();
    mock.set("licence", 1);
    let error = mock.device("MOCK").expect_err("no licence");
    assert_eq!(error, OpenError::Licence { device: "MOCK:0".to_owned() });
}

/// Which function says so differs between backends.
#[test]
fn a_licence_is_told_whichever_call_wants_it() {
    for function in ["is_available", "set_device", "create_stream", "malloc", "msm"] {
        let mock = Mock::new();
        mock.fail(function, 1, 13);
        let error = mock.device("MOCK").expect_err("no licence");
        assert_eq!(error, OpenError::Licence { device: "MOCK:0".to_owned() }, "{function}");
        drop(mock.device("MOCK").expect("it has one now"));
        mock.assert_empty();
    }
}

/// Threads and destructors of theirs may be under way.
#[test]
fn a_library_that_is_refused_is_not_closed() {
    let mock = Mock::without(&MARKS);
    mock.device("MOCK").expect_err("it reads other layouts");
    let folder = mock.folder().to_owned();
    mock.let_go();
    let maps = fs::read_to_string("/proc/self/maps").expect("this is Linux");
    assert!(maps.contains(folder.to_str().expect("a path")));
}

#[test]
fn all_devices_of_a_kind_are_opened_in_their_order() {
    let mock = Mock::new();
    mock.set("devices", 3);
    let names = |which: &Which| -> Vec<String> {
        let devices = Device::open_all(which, &mock.options()).expect("they are there");
        devices.iter().map(|device| device.name().to_string()).collect()
    };
    for which in [Which::First, Which::Kind("MOCK".to_owned())] {
        assert_eq!(names(&which), ["MOCK:0", "MOCK:1", "MOCK:2"], "{which}");
    }
    assert_eq!(names(&"MOCK:1".parse().expect("a name")), ["MOCK:1"]);
    assert_eq!(names(&Which::Kind("CPU".to_owned())), ["CPU:0"]);
    for wrong in ["NOPE", "MOCK:3"] {
        let error =
            Device::open_all(&wrong.parse().expect("it could be one"), &mock.options()).expect_err("there is none");
        assert!(matches!(error, OpenError::NoSuchDevice { .. }), "{error}");
    }
    // One of them is somebody else's already: whoever wants the others names them.
    let taken = mock.device("MOCK:1").expect("well");
    let error = Device::open_all(&Which::First, &mock.options()).expect_err("not all");
    assert_eq!(error, OpenError::AlreadyOpen { device: "MOCK:1".to_owned() });
    drop(taken);
    mock.assert_empty();
}

#[test]
fn a_device_that_computes_wrongly_is_not_trusted() {
    for (key, what) in [("wrong_msm", "multiplication"), ("wrong_ntt", "transform")] {
        let mock = Mock::new();
        mock.set(key, 1);
        let error = mock.device("MOCK").expect_err("wrong");
        let OpenError::Untrusted { what: said, .. } = &error else { panic!("{error}") };
        assert!(said.contains(what), "{said}");
        // It can be opened when it is well again: nothing was left behind.
        mock.set(key, 0);
        drop(mock.device("MOCK").expect("it computes rightly"));
        mock.assert_empty();
    }
}

#[test]
fn an_unknown_code_keeps_its_number() {
    let mock = Mock::new();
    mock.fail("vector", 1, 77);
    let error = mock.device("MOCK").expect_err("it says 77");
    assert!(matches!(&error, OpenError::Call(CallError { fault: Fault::Code { code: 77 }, .. })), "{error}");
    assert!(error.to_string().contains("77"), "{error}");
}

#[test]
fn a_device_is_open_once() {
    let mock = Mock::new();
    mock.set("devices", 2);
    let first = mock.device("MOCK").expect("it computes rightly");
    let error = mock.device("MOCK").expect_err("it is open");
    assert_eq!(error, OpenError::AlreadyOpen { device: "MOCK:0".to_owned() });
    let other = mock.device("MOCK:1").expect("another one");
    drop(first);
    drop(mock.device("MOCK").expect("it is closed now"));
    drop(other);
}

#[test]
fn a_device_that_does_not_tell_needs_a_budget() {
    let mock = Mock::new();
    let error = mock.device("CPU").expect("always there").alone(None).expect_err("no budget");
    assert_eq!(error, OpenError::NoBudget { device: "CPU:0".to_owned() });
}

#[test]
fn a_ledger_without_the_device_or_without_room_is_refused() {
    let mock = Mock::new();
    let error = mock.device("MOCK").expect("well").under(0, &Ledger::new(Budget::new())).expect_err("unnamed");
    assert!(matches!(error, OpenError::Ledger { number: 0, .. }), "{error}");
    let small = Ledger::new(Budget::new().device(3, Bytes(1000), 2));
    let error = mock.device("MOCK").expect("well").under(3, &small).expect_err("too small");
    assert!(matches!(error, OpenError::Ledger { number: 3, .. }), "{error}");
}
