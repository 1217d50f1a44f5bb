//! The commands: what they do in order, and what they print.

pub mod ctl;
pub mod doctor;
pub mod plan;
pub mod prove;
pub mod report;
pub mod simulate;
pub mod top;
pub mod verify;
