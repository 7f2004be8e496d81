//! A venue that is followed as it is now, as far as everybody but its own folder knows it.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::feed::Feed;
use super::follow::status::LiveStatus;
use super::tape::TapeSender;
use crate::tls::TlsError;

/// Follows a venue.
pub trait LiveVenue: Send {
    /// Its name in a status.
    fn name(&self) -> &'static str;

    /// How it is followed, for readers.
    fn status(&self) -> LiveStatus;

    /// Follows these markets too, by their condition ids, whatever else was chosen: somebody holds
    /// shares of them.
    fn hold(&mut self, condition_ids: BTreeSet<Arc<str>>);

    /// Puts on a tape what it hears. Called before it runs.
    fn record(&mut self, tape: TapeSender);

    /// Follows the venue for ever.
    fn run(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// A live venue that was chosen, with all that it needs.
pub trait LiveVenueConfig: fmt::Debug {
    /// Connects to nothing until it runs. Blocks on the disk, and fails where the certificates to
    /// trust cannot be read.
    fn open(self: Box<Self>, feed: Feed) -> Result<Box<dyn LiveVenue>, TlsError>;
}
