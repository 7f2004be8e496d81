//! Administration of accounts.
//!
//! [`acts`] has the operators' commands, and [`standing`] the lasting effects of those commands on
//! an account. [`reset`] starts an account over, [`erasure`] removes it, and [`summary`] shows it
//! to operators.

pub mod acts;
pub mod erasure;
pub mod reset;
pub mod standing;
pub mod summary;
