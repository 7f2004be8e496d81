//! The interface of a live venue, which is all that the code outside its folder knows of it.

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
    /// The venue's name in the status.
    fn name(&self) -> &'static str;

    /// The shared status, updated while it runs.
    fn status(&self) -> LiveStatus;

    /// Also follows these markets, by condition id, whatever the filter says: accounts hold shares
    /// of them.
    fn hold(&mut self, condition_ids: BTreeSet<Arc<str>>);

    /// Publishes to these markets from now on, which have none yet, beginning with all that is
    /// known. Call this while it does not run.
    fn move_to(&mut self, markets: Arc<Markets>);

    /// Records everything received on a tape. Call this before [`Self::run`].
    fn record(&mut self, tape: TapeSender);

    /// Follows the venue for ever. If this is dropped, another call goes on where it was.
    fn run(&mut self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The configuration of a live venue.
pub trait LiveVenueConfig: fmt::Debug {
    /// Where it connects to, each with the flag that chooses another place.
    fn addresses(&self) -> Vec<(&'static str, Uri)>;

    /// File of the only certificate authorities to trust; `None` for the system's.
    fn authorities(&self) -> Option<&Path>;

    /// Creates the connector, which connects to nothing until it runs. Reads the trusted
    /// certificates from disk, blocking, and fails if it cannot.
    fn open(self: Box<Self>, feed: Feed) -> Result<Box<dyn LiveVenue>, TlsError>;
}
