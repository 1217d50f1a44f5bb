//! A snapshot as JSON.

use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::{Resource, ledger::state::Kind};
use serde_json::{Value, json};

/// The most holders and waiters that are named, each.
const NAMED_MAX: usize = 256;

/// A snapshot of a ledger as JSON: bytes and nanoseconds are whole numbers, names are as the program gave them.
pub fn picture(snapshot: &Snapshot) -> Value {
    let of_kind = |kind: Kind| match kind {
        Kind::Space(space) => space.key().to_string(),
        Kind::Slots(slots) => slots.key().to_string(),
    };
    let spaces = snapshot.spaces.iter().map(|usage| {
        json!({
            "space": of_kind(usage.place.kind), "child": usage.place.child, "urgent": usage.place.urgent,
            "limit_bytes": usage.limit.0, "target_bytes": usage.target.0, "held_bytes": usage.held.0,
            "peak_bytes": usage.peak.0, "retired_bytes": usage.retired.map(|bytes| bytes.0),
        })
    });
    let slots = snapshot.slots.iter().map(|usage| {
        json!({
            "slots": of_kind(usage.place.kind), "child": usage.place.child,
            "limit": usage.limit, "held": usage.held, "peak": usage.peak,
        })
    });
    let classes = snapshot.classes.iter().map(|usage| {
        json!({
            "class": usage.class.name(), "space": usage.class.space().key().to_string(),
            "held_bytes": usage.totals.held, "peak_bytes": usage.totals.peak,
        })
    });
    let bytes_of = |held: &[(Resource, u64)]| -> u64 {
        held.iter().filter(|held| matches!(held.0, Resource::Class(_))).map(|held| held.1).sum()
    };
    let holders = snapshot.holders.iter().take(NAMED_MAX).map(|holding| {
        json!({
            "who": holding.who, "stage": holding.stage, "since_ns": holding.since, "held_bytes": bytes_of(&holding.held),
            "at": holding.reserved_at.map(|at| at.to_string()), "external": holding.external.map(|external| external.0),
        })
    });
    let waiters = snapshot.waiters.iter().take(NAMED_MAX).map(|waiter| {
        json!({
            "who": waiter.shortage.who, "stage": waiter.stage, "since_ns": waiter.since, "passed": waiter.passed,
            "in_flight": waiter.in_flight, "needs_bytes": bytes_of(&waiter.needs), "why": waiter.shortage.to_string(),
        })
    });
    let residencies = snapshot.residencies.iter().map(|usage| {
        json!({
            "name": usage.name, "class": usage.class.name(), "bytes": usage.bytes.0, "held_bytes": usage.held.0,
            "stand": format!("{:?}", usage.stand), "pins": usage.pins, "loads": usage.loads, "evictions": usage.evictions,
        })
    });
    json!({
        "time_ns": snapshot.time, "paused": snapshot.paused, "granted_at_ns": snapshot.granted_at, "forced": snapshot.forced,
        "retried": snapshot.retried, "restarted": snapshot.restarted, "overdrawn": snapshot.overdrawn,
        "outlived": snapshot.outlived,
        "spaces": spaces.collect::<Vec<_>>(), "slots": slots.collect::<Vec<_>>(), "classes": classes.collect::<Vec<_>>(),
        "holders": holders.collect::<Vec<_>>(), "holders_count": snapshot.holders.len(),
        "waiters": waiters.collect::<Vec<_>>(), "waiters_count": snapshot.waiters.len(),
        "residencies": residencies.collect::<Vec<_>>(),
    })
}
