//! What happens to whole accounts.
//!
//! [`acts`] are the commands of operators, and [`standing`] what an account keeps of them;
//! [`reset`] starts an account over, [`erasure`] removes it, [`summary`] shows it to operators.

pub mod acts;
pub mod erasure;
pub mod reset;
pub mod standing;
pub mod summary;
