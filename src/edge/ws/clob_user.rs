//! The user socket of the venue's interface: what happens to the orders of a wallet.
//!
//! A socket is opened by anybody, and shows its credentials in its first frame. From then on it is
//! told each order that is placed, filled or ended, and each trade, once they are on disk
//! ([`feed`]). A client that asks whether the server is there (`PING`) is answered at any time; if
//! its credentials are being looked up, once it is told what happens.

pub mod feed;
mod frame;
mod troubled;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use self::feed::{Outbox, Outlet, UserFeed};
use self::frame::{Markets, TooManyMarkets, UserRequest};
use self::troubled::UserTrouble;
use super::batch::Batch;
use super::clob::{Opening, answer_ping};
use super::close::{ClobFlaw, CloseReason};
use super::connection::{Ended, Peer, Protocol, serve};
use super::watch::Watch;
use crate::trouble::SocketTrouble;
use paperbourse_clob::signature::address::Address;
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_core::limits::budget::Share;
use paperbourse_exchange::auth::wallet::SocketCredentials;
use paperbourse_store::journal::Waiters;

pub use self::frame::USER_MARKETS_MAX;

/// An account whose credentials a socket has shown.
pub struct User {
    /// The account.
    pub account: AccountId,
    /// The wallet that owns the account.
    pub wallet: Address,
    /// The socket's share of the budget for frames that peers have not read.
    pub unsent: Share,
}

/// Checks the credentials of a first frame, and counts the socket for their account.
pub type Authenticate = Box<dyn FnMut(&SocketCredentials<'_>) -> Result<User, CloseReason> + Send>;

/// Tells a client what happens to its orders until the socket ends. `received` are the bytes that
/// arrived after the head of the upgrade request, and `trouble` is what the socket meets on
/// purpose.
pub async fn serve_user<S>(
    (stream, received): (S, Vec<u8>),
    peer: Peer,
    (feed, waiters, authenticate): (&Arc<UserFeed>, &Arc<Waiters>, Authenticate),
    watch: &Watch,
    trouble: Option<SocketTrouble>,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let socket = UserSocket::default();
    let protocol = Frames { socket: &socket, authenticate, trouble };
    let fetching = socket.run(feed, waiters);
    serve((stream, received), peer, (protocol, socket.wake_writer.clone(), fetching), watch).await
}

/// What the reader of a socket, its writer and the future that follows the account share.
#[derive(Default)]
struct UserSocket {
    wake_writer: Arc<Notify>,
    opening: Arc<Opening>,
    /// Signals that the credentials are good.
    authenticated: Notify,
    stage: Mutex<Stage>,
}

#[derive(Default)]
enum Stage {
    /// No credentials are there, or bad ones.
    #[default]
    New,
    /// The credentials are good. Nothing is written until the account is followed.
    Authenticated(Arc<Outlet>),
    /// The account is followed.
    Following(Arc<Outlet>),
}

impl UserSocket {
    /// Waits until the socket must end, and follows the account once it is known.
    async fn run(&self, feed: &Arc<UserFeed>, waiters: &Arc<Waiters>) -> Ended {
        tokio::select! {
            ended = self.opening.ended() => ended,
            reason = self.follow(feed, waiters) => Ended::Closed(reason),
        }
    }

    async fn follow(&self, feed: &Arc<UserFeed>, waiters: &Arc<Waiters>) -> CloseReason {
        self.authenticated.notified().await;
        let outlet = match &*self.stage.lock() {
            Stage::Authenticated(outlet) => outlet.clone(),
            Stage::New | Stage::Following(_) => unreachable!("the signal is given once, after it"),
        };
        let _follower = match feed.follow(outlet.clone(), waiters).await {
            Ok(follower) => follower,
            Err(reason) => return reason,
        };
        let _recorded = outlet.trouble.as_ref().map(UserTrouble::record);
        *self.stage.lock() = Stage::Following(outlet.clone());
        self.wake_writer.notify_one();
        match outlet.settle().await {}
    }
}

/// The frames of a client, and those that are written to it.
struct Frames<'a> {
    socket: &'a UserSocket,
    authenticate: Authenticate,
    trouble: Option<SocketTrouble>,
}

impl Frames<'_> {
    /// Reads the frame that shows the credentials.
    fn authenticate(&mut self, text: &[u8]) -> Result<Outlet, CloseReason> {
        let request = UserRequest::parse(text);
        let request = request.ok_or(CloseReason::Clob(ClobFlaw::NoCredential))?;
        let auth = request.auth.ok_or(CloseReason::Clob(ClobFlaw::NoCredential))?;
        let markets = Markets::first(&request.markets.unwrap_or_default());
        let markets = markets.map_err(|TooManyMarkets| TOO_MANY_MARKETS)?;
        let user = (self.authenticate)(&SocketCredentials {
            api_key: auth.api_key.as_bytes(),
            secret: auth.secret.as_bytes(),
            passphrase: auth.passphrase.as_bytes(),
        })?;
        let User { account, wallet, unsent } = user;
        Ok(Outlet {
            account,
            owner: auth.api_key.into(),
            wallet,
            wake_writer: self.socket.wake_writer.clone(),
            opening: self.socket.opening.clone(),
            trouble: self.trouble.take().map(|trouble| UserTrouble::new(trouble, wallet)),
            settling: Notify::new(),
            outbox: Mutex::new(Outbox::new(markets, unsent)),
        })
    }
}

const TOO_MANY_MARKETS: CloseReason = CloseReason::Clob(ClobFlaw::TooManyMarkets);

/// Changes the markets of a socket. Whatever asks for something else is ignored.
fn change_markets(outlet: &Outlet, text: &[u8]) {
    let Some(request) = UserRequest::parse(text) else { return };
    let Some(names) = &request.markets else { return };
    let mut outbox = outlet.outbox.lock();
    if request.is_unsubscribe() {
        outbox.markets.remove(names);
    } else if let Err(TooManyMarkets) = outbox.markets.add(names) {
        outlet.close(&mut outbox, TOO_MANY_MARKETS);
    }
}

impl Protocol for Frames<'_> {
    fn answer(&mut self, text: &[u8], _: Timestamp, replies: &mut Vec<u8>) {
        if answer_ping(text, replies) {
            return;
        }
        let socket = self.socket;
        if let Stage::Authenticated(outlet) | Stage::Following(outlet) = &*socket.stage.lock() {
            return change_markets(outlet, text);
        }
        match self.authenticate(text) {
            Ok(outlet) => {
                *socket.stage.lock() = Stage::Authenticated(Arc::new(outlet));
                socket.opening.begin();
                socket.authenticated.notify_one();
            }
            Err(reason) => socket.opening.close(reason),
        }
    }

    fn take(&mut self, replies: &mut Vec<u8>, batch: &mut Batch, bytes_goal: usize) {
        match &*self.socket.stage.lock() {
            Stage::New => {}
            // A client that is answered after it has shown its credentials counts on being told
            // what happens from then on.
            Stage::Authenticated(_) => return,
            Stage::Following(outlet) => outlet.take(batch, bytes_goal),
        }
        batch.take(replies);
    }

    fn finish(&mut self) -> bool {
        match &*self.socket.stage.lock() {
            Stage::Following(outlet) => outlet.finish(),
            Stage::New | Stage::Authenticated(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
