//! End-to-end and fault tests of the `plimsoll` command.

mod budget;
mod circom;
mod circom_faults;
mod circom_sizes;
mod faults;
mod icicle;
mod interrupt;
mod key;
mod main_job;
mod proof;
mod report;
mod simulate;
mod socket;
mod support;
mod trace;
mod watch;
