//! Opens sockets: creates the tokens that open them, and upgrades connections.
//!
//! A browser tells a page's scripts only a close code. So a caller with an insufficient credential
//! is upgraded anyway, and its socket is then closed. Only requests that are not upgrades, and
//! those over a rate limit, are answered in plain HTTP.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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
use crate::ws::bounds::{PRICES_BYTES_GOAL, WRITE_BYTES_GOAL};
use crate::ws::close::{CloseReason, Credential};
use crate::ws::connection::{Ended, Peer, refuse};
use crate::ws::executions::serve_executions;
use crate::ws::prices::serve_prices;
use crate::ws::turns::Turns;
use crate::ws::watch::Watch;
use crate::ws::{Upgrading, upgrade};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::bucket::{BucketRule, TokenBucket};
use paperbourse_core::limits::tier::{MarketsMax, TierLimits};
use paperbourse_exchange::auth::presented::Presented;
use paperbourse_exchange::auth::ws_token::WS_TOKEN_SECONDS;
use paperbourse_exchange::service::{Denied, RequestContext, ServiceError, SocketCaller};
use paperbourse_store::journal::Waiters;

/// The data that a socket streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Stream {
    /// The prices of markets that the client subscribes to.
    Prices,
    /// The fills of the account.
    Executions,
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
    let token = Query::new(operation, head.uri.query()).get("token");
    // Text that is too long cannot be a valid token.
    let token = token.filter(|token| token.len() <= TOKEN_CHARACTERS_MAX);
    let presented = presented(headers, operation.access);
    let identified = app.service.identify_socket(token.as_deref(), &presented, context).await;
    let peer = match identified {
        Ok(caller) => {
            slot.recognize();
            admit(app, caller)
        }
        Err(ServiceError::Denied(denied @ Denied::TooOften { .. })) => {
            return Ok(count_limited(&worker.metrics, Err(denied))?);
        }
        Err(ServiceError::Denied(denied)) => {
            let credential = match denied {
                _ if token.is_some() => Credential::SocketToken,
                Denied::Policy(_) => Credential::Unpermitted,
                Denied::MissingCredential if presented == Presented::Nothing => Credential::Missing,
                Denied::MissingCredential => Credential::AccessToken,
                _ if headers.api_key.first().is_some_and(|key| !key.is_empty()) => Credential::Key,
                _ => Credential::Authorization,
            };
            Err(CloseReason::BadCredential(credential))
        }
        Err(error) => return Err(error.into()),
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
    tokio::spawn(serving.run(upgrading, peer));
    let (head, _) = response.into_parts();
    Ok(Reply { headers: head.headers, ..Reply::json(head.status, Vec::new()) })
}

/// Takes one of the account's socket slots, if its tier allows another one.
fn admit(app: &Arc<AppState>, caller: SocketCaller) -> Result<(Peer, MarketsMax), CloseReason> {
    let TierLimits { sockets_max, socket_markets_max, .. } = app.service.tiers().get(caller.tier);
    let account_id = caller.account;
    if !app.service.room().has_room_for_readers() {
        return Err(CloseReason::Busy);
    }
    let open = app.sockets.try_open(account_id, sockets_max).ok_or(CloseReason::TooManySockets)?;
    let mut bucket = TokenBucket::new(BucketRule::SOCKET_FRAMES);
    let peer = Peer {
        account_id,
        open,
        unsent: app.unsent.share(),
        batch_bytes: PRICES_BYTES_GOAL,
        allow: Box::new(move |now_ns| bucket.draw(now_ns).is_admitted),
        is_valid: Box::new(move || caller.is_valid(Timestamp::now())),
    };
    Ok((peer, socket_markets_max))
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
    async fn run(self, upgrading: Upgrading, peer: Result<(Peer, MarketsMax), CloseReason>) {
        let Some(upgraded) = upgrading.done().await else { return };
        // Spawned as a task of its own, which reserves no memory for the steps of this one.
        match transport_of::<TcpStream>(upgraded) {
            Ok(transport) => drop(tokio::spawn(self.serve(transport, peer))),
            // Not a TCP connection: a socket that another node forwards, or a pipe in a test.
            Err(upgraded) => {
                let batch_bytes = WRITE_BYTES_GOAL;
                let peer = peer.map(|(peer, most)| (Peer { batch_bytes, ..peer }, most));
                drop(tokio::spawn(self.serve((TokioIo::new(upgraded), Vec::new()), peer)));
            }
        }
    }

    async fn serve<Io>(
        self,
        (io, received): (Io, Vec<u8>),
        peer: Result<(Peer, MarketsMax), CloseReason>,
    ) where
        Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { stream, app, waiters, turns, slot, watch, metrics } = self;
        let ended = match (peer, stream) {
            (Ok((peer, markets_max)), Stream::Prices) => {
                let from = (&app.fanout, &turns);
                serve_prices((io, received), peer, from, markets_max, &watch).await
            }
            (Ok((peer, _)), Stream::Executions) => {
                match app.service.follow_fills(peer.account_id, &waiters) {
                    Some(follower) => {
                        let from = (follower, &app.executions);
                        // Boxed, because this future is larger than the one that serves prices.
                        Box::pin(serve_executions((io, received), peer, from, &watch)).await
                    }
                    None => refuse(io, CloseReason::Busy).await,
                }
            }
            (Err(reason), _) => refuse(io, reason).await,
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
