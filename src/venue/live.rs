//! The interface of a live venue. Code outside the venue's own folder uses nothing else from there.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use hyper::Uri;

use super::feed::Feed;
use super::follow::status::LiveStatus;
use super::tape::TapeSender;
use crate::tls::TlsError;
use paperbourse_core::market::Markets;

/// A connector to a live venue.
pub trait LiveVenue: Send {
    /// Returns the venue's name in the status.
    fn name(&self) -> &'static str;

    /// Returns the shared status, which is updated while the connector runs.
    fn status(&self) -> LiveStatus;

    /// Also follows these markets, by condition id, regardless of the filter, because accounts hold
    /// their shares.
    fn hold(&mut self, condition_ids: BTreeSet<Arc<str>>);

    /// Switches publication to `markets`, which must be empty, and starts with everything known so
    /// far. Must not be called while [`Self::run`] is in progress.
    fn move_to(&mut self, markets: Arc<Markets>);

    /// Records all received data to this tape. Must be called before [`Self::run`].
    fn record(&mut self, tape: TapeSender);

    /// Follows the venue forever. If the future is dropped, the next call resumes where it stopped.
    fn run(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The configuration of a live venue.
pub trait LiveVenueConfig: fmt::Debug {
    /// Returns the addresses to connect to, each with the flag that overrides it.
    fn addresses(&self) -> Vec<(&'static str, Uri)>;

    /// Returns the file of certificate authorities to trust exclusively, or `None` to trust the
    /// system's authorities.
    fn authorities(&self) -> Option<&Path>;

    /// Creates the connector, which connects to nothing until it runs. Blocks while it reads the
    /// trusted certificates from disk, and fails if they cannot be read.
    fn open(self: Box<Self>, feed: Feed) -> Result<Box<dyn LiveVenue>, TlsError>;
}
