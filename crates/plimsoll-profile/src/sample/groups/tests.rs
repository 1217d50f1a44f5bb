use super::super::files::tests::Tree;
use super::*;

fn check(files: &[(&str, &str)], bytes: u64, source: &str) {
    let tree = Tree::new(files);
    let limits = Groups::new(tree.root()).limits();
    let limit = limits.iter().min_by_key(|limit| limit.bytes).expect("a limit");
    let expected = format!("control group limit {source}");
    assert_eq!((limit.bytes, limit.source.to_string()), (Bytes(bytes), expected));
}

const V2: (&str, &str) =
    ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
const V1: (&str, &str) = (
    "proc/self/mountinfo",
    "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
     35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
);

#[test]
fn own_group_of_version_2() {
    let files = [
        V2,
        ("proc/self/cgroup", "0::/user.slice/a.scope\n"),
        ("sys/fs/cgroup/user.slice/a.scope/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/user.slice/a.scope/memory.high", "max\n"),
        ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
    ];
    check(&files, 1 << 30, "/sys/fs/cgroup/user.slice/a.scope/memory.max");
}

#[test]
fn parents_of_version_2_count() {
    let files = [
        V2,
        ("proc/self/cgroup", "0::/user.slice/a.scope/deep\n"),
        ("sys/fs/cgroup/user.slice/a.scope/deep/memory.max", "max\n"),
        ("sys/fs/cgroup/user.slice/a.scope/memory.max", "4294967296\n"),
        ("sys/fs/cgroup/user.slice/memory.high", "2147483648\n"),
    ];
    check(&files, 2 << 30, "/sys/fs/cgroup/user.slice/memory.high");
}

#[test]
fn parents_of_version_1_count_and_its_no_limit_does_not() {
    let files = [
        V1,
        ("proc/self/cgroup", "4:memory:/jobs/7\n1:cpu:/\n0::/\n"),
        ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "3221225472\n"),
    ];
    check(&files, 3 << 30, "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes");
}

/// In a container the parents' files cannot be seen; the own group's statistics tell what they allow.
#[test]
fn parents_of_version_1_that_cannot_be_seen_count_too() {
    let files = [
        V1,
        ("proc/self/cgroup", "4:memory:/jobs/7\n"),
        ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/jobs/7/memory.stat", "cache 1\nhierarchical_memory_limit 2147483648\ntotal_cache 3\n"),
    ];
    check(&files, 2 << 30, "/sys/fs/cgroup/memory/jobs/7/memory.stat");
}

#[test]
fn group_seen_from_outside_its_container() {
    let mount = "35 31 0:32 /docker/f00 /sys/fs/cgroup/memory ro master:11 - cgroup cgroup rw,memory\n";
    let files = [
        ("proc/self/mountinfo", mount),
        ("proc/self/cgroup", "4:memory:/docker/f00\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
    ];
    check(&files, 512 << 20, "/sys/fs/cgroup/memory/memory.limit_in_bytes");
}

#[test]
fn group_outside_the_namespace_takes_the_mount() {
    let files = [
        V2,
        ("proc/self/cgroup", "0::/../other\n"),
        ("sys/fs/cgroup/memory.max", "268435456\n"),
        ("sys/fs/other/memory.max", "1\n"),
    ];
    check(&files, 256 << 20, "/sys/fs/cgroup/memory.max");
}

#[test]
fn both_versions_at_once() {
    let mounts = format!("{}{}", V1.1, "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
    let files = [
        ("proc/self/mountinfo", &*mounts),
        ("proc/self/cgroup", "4:memory:/jobs\n0::/x\n"),
        ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "4096\n"),
        ("sys/fs/cgroup/unified/x/memory.max", "8192\n"),
    ];
    check(&files, 4096, "/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes");
}

#[test]
fn strange_values_are_no_limits() {
    for value in ["max\n", "", "-1\n", "12 kB\n", "18446744073709551615\n", "99999999999999999999\n"] {
        let tree = Tree::new(&[V2, ("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", value)]);
        assert_eq!(Groups::new(tree.root()).limits(), [], "{value:?}");
    }
    assert_eq!(Groups::new(Tree::new(&[]).root()).limits(), []);
}

#[test]
fn the_tightest_group_is_the_one_with_least_left_not_the_smallest() {
    let tree = Tree::new(&[
        V2,
        ("proc/self/cgroup", "0::/p/a\n"),
        ("sys/fs/cgroup/p/a/memory.max", "1000\n"),
        ("sys/fs/cgroup/p/a/memory.current", "300\n"),
        ("sys/fs/cgroup/p/memory.max", "2000\n"),
        ("sys/fs/cgroup/p/memory.current", "1900\n"),
        ("sys/fs/cgroup/p/memory.stat", "anon 70\nactive_file 5\ninactive_file 100\n"),
        ("sys/fs/cgroup/p/memory.events", "low 0\noom 3\noom_kill 2\n"),
    ]);
    let tightest = Groups::new(tree.root()).tightest().unwrap();
    let expected = GroupMemory {
        file: "/sys/fs/cgroup/p/memory.max".into(),
        limit_bytes: 2000,
        used_bytes: 1900,
        reclaimable_bytes: 100,
        anonymous_bytes: Some(70),
        oom_kills: 2,
    };
    assert_eq!((tightest.left_bytes(), tightest), (200, expected));
}

#[test]
fn changes_are_followed() {
    let tree = Tree::new(&[
        V2,
        ("proc/self/cgroup", "0::/a\n"),
        ("sys/fs/cgroup/a/memory.max", "1000\n"),
        ("sys/fs/cgroup/b/memory.max", "500\n"),
    ]);
    let mut groups = Groups::new(tree.root());
    let limit = |groups: &Groups| groups.limits().iter().map(|limit| limit.bytes.0).min();
    assert!(!groups.refresh());
    assert_eq!(limit(&groups), Some(1000));
    // The limit is lowered.
    tree.write("sys/fs/cgroup/a/memory.max", "700\n");
    assert!(!groups.refresh());
    assert_eq!(limit(&groups), Some(700));
    // The process is moved.
    tree.write("proc/self/cgroup", "0::/b\n");
    assert!(groups.refresh());
    assert_eq!(limit(&groups), Some(500));
    // The limit is taken away.
    tree.write("sys/fs/cgroup/b/memory.max", "max\n");
    assert_eq!(limit(&groups), None);
}
