//! Opens sockets: creates the tokens that open them, and upgrades connections.
//!
//! A browser tells a page's scripts only a close code. So a caller with an insufficient credential
//! is upgraded anyway, and its socket is then closed. Only requests that are not upgrades, and
//! those over a rate limit, are answered in plain HTTP.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use hyper::Request;
use hyper::http::request::Parts;
use hyper_util::rt::TokioIo;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::http::app::{AppState, ConnectionSlot, Worker};
use crate::http::call::{Answer, Call};
use crate::http::connection::transport_of;
use crate::http::error::ApiError;
use crate::http::handle::{count_limited, presented};
use crate::http::operation::Operation;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::http::request_headers::RequestHeaders;
use crate::telemetry::Metrics;
use crate::trouble::SocketTrouble;
use crate::ws::bounds::{PRICES_BYTES_GOAL, WRITE_BYTES_GOAL};
use crate::ws::clob_market::serve_clob_market;
use crate::ws::clob_user::{Authenticate, User, serve_user};
use crate::ws::close::{ClobFlaw, CloseReason, Credential};
use crate::ws::connection::{Ended, Peer, refuse};
use crate::ws::counts::{CountedSocket, Recount, UserSlot};
use crate::ws::executions::serve_executions;
use crate::ws::prices::serve_prices;
use crate::ws::turns::Turns;
use crate::ws::watch::Watch;
use crate::ws::{FrameLimit, Upgrading, upgrade};
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_core::limits::bucket::{BucketRule, Origin, TokenBucket};
use paperbourse_core::limits::tier::{MarketsMax, TierLimits};
use paperbourse_exchange::auth::presented::Presented;
use paperbourse_exchange::auth::ws_token::WS_TOKEN_SECONDS;
use paperbourse_exchange::service::{Caller, Denied, RequestContext, ServiceError, SocketCaller};
use paperbourse_store::journal::Waiters;

/// The data that a socket streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Stream {
    /// The prices of markets that the client subscribes to.
    Prices,
    /// The fills of the account.
    Executions,
    /// The books of assets that a client of the venue subscribes to.
    ClobMarket,
    /// What happens to the orders of a client of the venue.
    ClobUser,
}

impl Stream {
    /// Whether the socket belongs to the venue's interface. Its client has no credential for the
    /// upgrade.
    pub(in crate::http) const fn is_clob(self) -> bool {
        matches!(self, Self::ClobMarket | Self::ClobUser)
    }
}

/// The query parameters of a socket.
pub(in crate::http) const QUERY: [Parameter; 1] =
    [Parameter::own("token", "", "a token of `POST /v1/keys/ws-token`, in place of a key")];

/// Maximum length of a socket token, in characters.
const TOKEN_CHARACTERS_MAX: usize = 4_096;

/// A token for the `token` parameter of a socket.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SocketToken")]
pub(in crate::http) struct TokenAnswer<'a> {
    token: &'a str,
    /// In seconds.
    expires_in: u32,
}

pub(in crate::http) fn create_token(call: &Call<'_>) -> Answer {
    let token = call.service().mint_ws_token(&call.caller, call.context.moment)?;
    Ok(Reply::ok(&TokenAnswer { token: &token, expires_in: WS_TOKEN_SECONDS }))
}

pub(in crate::http) async fn open(
    worker: &Worker,
    app: &Arc<AppState>,
    slot: &Arc<ConnectionSlot>,
    (operation, stream): (&'static Operation, Stream),
    (head, headers): (&Parts, &RequestHeaders<'_>),
    context: RequestContext<'_>,
) -> Answer {
    let admitted = if stream.is_clob() {
        let caller = &Caller::Anonymous;
        let (drawn, _) = app.service.admit(caller, context.address, context.moment);
        count_limited(&worker.metrics, drawn)?;
        admit_address(app, stream, context.address)
    } else {
        identify(worker, app, slot, (operation, stream), (head, headers), context).await?
    };
    let mut request = Request::from_parts(head.clone(), ());
    let (response, upgrading) = upgrade(&mut request).map_err(ApiError::upgrade_required)?;
    let serving = Serving {
        stream,
        app: app.clone(),
        waiters: context.waiters.clone(),
        turns: worker.turns().clone(),
        slot: slot.clone(),
        watch: worker.watch().clone(),
        metrics: worker.metrics.clone(),
    };
    tokio::spawn(serving.run(upgrading, admitted));
    let (head, _) = response.into_parts();
    Ok(Reply { headers: head.headers, ..Reply::json(head.status, Vec::new()) })
}

/// Finds out for whom one of this server's own sockets is.
async fn identify(
    worker: &Worker,
    app: &Arc<AppState>,
    slot: &Arc<ConnectionSlot>,
    (operation, stream): (&'static Operation, Stream),
    (head, headers): (&Parts, &RequestHeaders<'_>),
    context: RequestContext<'_>,
) -> Result<Result<Admitted, CloseReason>, ApiError> {
    let token = Query::new(operation, head.uri.query()).get("token");
    // Text that is too long cannot be a valid token.
    let token = token.filter(|token| token.len() <= TOKEN_CHARACTERS_MAX);
    let presented = presented(headers, operation.access);
    let identified = app.service.identify_socket(token.as_deref(), &presented, context).await;
    let credential = match identified {
        Ok(caller) => {
            slot.recognize();
            return Ok(admit(app, stream, caller));
        }
        Err(ServiceError::Denied(denied @ Denied::TooOften { .. })) => {
            return Ok(count_limited(&worker.metrics, Err(denied))?);
        }
        Err(ServiceError::Denied(denied)) => match denied {
            _ if token.is_some() => Credential::SocketToken,
            Denied::Policy(_) => Credential::Unpermitted,
            Denied::MissingCredential if presented == Presented::Nothing => Credential::Missing,
            Denied::MissingCredential => Credential::AccessToken,
            _ if headers.api_key.first().is_some_and(|key| !key.is_empty()) => Credential::Key,
            _ => Credential::Authorization,
        },
        Err(error) => return Err(error.into()),
    };
    Ok(Err(CloseReason::BadCredential(credential)))
}

/// A socket that may be opened.
struct Admitted {
    peer: Peer,
    sends: Sends,
}

/// What a socket sends.
enum Sends {
    /// Prices of as many markets.
    Prices(AccountId, MarketsMax),
    Executions(AccountId),
    ClobMarket(Option<SocketTrouble>),
    /// What happens to the orders of the account whose credentials this finds good.
    ClobUser(Authenticate, Option<SocketTrouble>),
}

/// Takes one of the account's socket slots, if its tier allows another one.
fn admit(
    app: &Arc<AppState>,
    stream: Stream,
    caller: SocketCaller,
) -> Result<Admitted, CloseReason> {
    let TierLimits { sockets_max, socket_markets_max, .. } = app.service.tiers().get(caller.tier);
    let account_id = caller.account;
    if !app.service.room().has_room_for_readers() {
        return Err(CloseReason::Busy);
    }
    let open = app.sockets.try_open(account_id, sockets_max).ok_or(CloseReason::TooManySockets)?;
    let peer = Peer {
        frames: FrameLimit::OWN,
        is_valid: Box::new(move || caller.is_valid(Timestamp::now())),
        ..peer(app, CountedSocket::OfAccount(open))
    };
    let sends = match stream {
        Stream::Executions => Sends::Executions(account_id),
        _ => Sends::Prices(account_id, socket_markets_max),
    };
    Ok(Admitted { peer, sends })
}

/// Takes one of the address's slots for sockets of the venue's interface.
fn admit_address(
    app: &Arc<AppState>,
    stream: Stream,
    address: IpAddr,
) -> Result<Admitted, CloseReason> {
    if !app.service.room().has_room_for_readers() {
        return Err(CloseReason::Busy);
    }
    let sockets_max = app.streams_per_address_max.load(Ordering::Relaxed);
    let open = app.clob_sockets.try_open(Origin::of(address), sockets_max);
    let open = open.ok_or(CloseReason::Clob(ClobFlaw::TooManySockets))?;
    let trouble = app.trouble.clone().map(|trouble| SocketTrouble { trouble, address });
    if stream == Stream::ClobMarket {
        let peer = peer(app, CountedSocket::OfAddress(open));
        return Ok(Admitted { peer, sends: Sends::ClobMarket(trouble) });
    }
    let (slot, recount) = UserSlot::new(open);
    let caller: Arc<OnceLock<SocketCaller>> = Arc::default();
    let authenticate = authenticate(app.clone(), recount, caller.clone(), address);
    let is_valid = move || caller.get().is_none_or(|caller| caller.is_valid(Timestamp::now()));
    let peer = Peer {
        is_valid: Box::new(is_valid),
        batch_bytes: WRITE_BYTES_GOAL,
        ..peer(app, CountedSocket::OfUser(slot))
    };
    Ok(Admitted { peer, sends: Sends::ClobUser(authenticate, trouble) })
}

/// Returns what finds out for whom a socket is. It notes the caller, and counts the socket for the
/// caller's account in place of the address.
fn authenticate(
    app: Arc<AppState>,
    recount: Recount,
    known: Arc<OnceLock<SocketCaller>>,
    address: IpAddr,
) -> Authenticate {
    Box::new(move |credentials| {
        let moment = app.service.moment();
        let identified = app.service.identify_wallet_socket(credentials, address, moment);
        let (caller, wallet) = identified.map_err(|error| {
            CloseReason::Clob(match error {
                ServiceError::Denied(Denied::TooOften { .. }) => ClobFlaw::TooOften,
                _ => ClobFlaw::Credential,
            })
        })?;
        let TierLimits { sockets_max, .. } = app.service.tiers().get(caller.tier);
        let account = caller.account;
        let open = app.sockets.try_open(account, sockets_max);
        recount.count_for(open.ok_or(CloseReason::TooManySockets)?);
        // Only the first frame is read as credentials.
        let _ = known.set(caller);
        Ok(User { account, wallet, unsent: app.unsent.share() })
    })
}

/// Returns a client of the venue's interface.
fn peer(app: &Arc<AppState>, open: CountedSocket) -> Peer {
    let mut bucket = TokenBucket::new(BucketRule::SOCKET_FRAMES);
    Peer {
        open,
        unsent: app.unsent.share(),
        batch_bytes: PRICES_BYTES_GOAL,
        frames: FrameLimit::CLOB,
        allow: Box::new(move |now_ns| bucket.draw(now_ns).is_admitted),
        is_valid: Box::new(|| true),
    }
}

/// A socket that is about to open.
struct Serving {
    stream: Stream,
    app: Arc<AppState>,
    waiters: Arc<Waiters>,
    turns: Arc<Turns>,
    slot: Arc<ConnectionSlot>,
    watch: Arc<Watch>,
    metrics: Arc<Metrics>,
}

impl Serving {
    async fn run(self, upgrading: Upgrading, admitted: Result<Admitted, CloseReason>) {
        let Some(upgraded) = upgrading.done().await else { return };
        // Spawned as a task of its own, which reserves no memory for the steps of this one.
        match transport_of::<TcpStream>(upgraded) {
            Ok(transport) => drop(tokio::spawn(self.serve(transport, admitted))),
            // Not a TCP connection: a socket that another node forwards, or a pipe in a test.
            Err(upgraded) => {
                let admitted = admitted.map(|mut admitted| {
                    admitted.peer.batch_bytes = WRITE_BYTES_GOAL;
                    admitted
                });
                drop(tokio::spawn(self.serve((TokioIo::new(upgraded), Vec::new()), admitted)));
            }
        }
    }

    async fn serve<Io>(self, (io, received): (Io, Vec<u8>), admitted: Result<Admitted, CloseReason>)
    where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { stream, app, waiters, turns, slot, watch, metrics } = self;
        let from = (&app.fanout, &turns);
        // Boxed where a future is larger than the one that serves prices.
        let ended = match admitted {
            Ok(Admitted { peer, sends: Sends::Prices(account_id, markets_max) }) => {
                let shown = (account_id, markets_max);
                serve_prices((io, received), peer, from, shown, &watch).await
            }
            Ok(Admitted { peer, sends: Sends::Executions(account_id) }) => {
                match app.service.follow_fills(account_id, &waiters) {
                    Some(follower) => {
                        let from = (follower, &app.executions);
                        Box::pin(serve_executions((io, received), peer, from, &watch)).await
                    }
                    None => refuse(io, CloseReason::Busy).await,
                }
            }
            Ok(Admitted { peer, sends: Sends::ClobMarket(trouble) }) => {
                Box::pin(serve_clob_market((io, received), peer, from, &watch, trouble)).await
            }
            Ok(Admitted { peer, sends: Sends::ClobUser(authenticate, trouble) }) => {
                let from = (&app.users, &waiters, authenticate);
                Box::pin(serve_user((io, received), peer, from, &watch, trouble)).await
            }
            Err(reason) => refuse(io, reason).await,
        };
        metrics.socket_ended(ended);
        if matches!(ended, Ended::Closed(reason) if reason.code() == CloseReason::TooSlow.code()) {
            app.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        tracing::debug!(?stream, ?ended, "socket closed");
        // The socket counts as a connection until here.
        drop(slot);
    }
}
