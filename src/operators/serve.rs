//! Serves the socket.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use super::answer::{Desk, Refused};
use super::user::operator;
use super::{OperatorSocket, Question};
use crate::engine::standing::Operator;
use crate::http::body::RequestBody;
use crate::http::connection::{Deadlines, serve_connection};
use crate::http::exchange::Exchange;
use crate::limits::budget::ByteBudget;

/// How many operators are served at a time.
const CONNECTIONS_MAX: usize = 8;

/// How long an idle operator may keep the connection.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The longest question, in bytes.
const QUESTION_BYTES_MAX: usize = 16 * 1024;

/// Serves operators until the process ends.
pub fn serve(
    socket: &OperatorSocket,
    exchange: &Arc<Exchange>,
) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let listener = UnixListener::from_std(socket.listener()?)?;
    let desk = Arc::new(Desk { exchange: exchange.clone(), waiters: exchange.journal.register() });
    Ok(async move {
        tokio::select! {
            () = desk.waiters.run() => {}
            () = accept(listener, desk.clone()) => {}
        }
    })
}

async fn accept(listener: UnixListener, desk: Arc<Desk>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let budget = ByteBudget::new(CONNECTIONS_MAX * QUESTION_BYTES_MAX);
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely out of file descriptors: retry a little later.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let by = match stream.peer_cred() {
            Ok(peer) => operator(peer.uid()),
            Err(error) => {
                tracing::debug!("an operator's connection ended: {error}");
                continue;
            }
        };
        let (desk, budget) = (desk.clone(), budget.clone());
        tokio::spawn(async move {
            let _slot = slot;
            let respond = |request| respond(request, by.clone(), desk.clone(), budget.clone());
            let deadlines = Deadlines { idle: IDLE_MAX, ..Deadlines::default() };
            if let Err(error) = serve_connection(stream, deadlines, respond, pending()).await {
                tracing::debug!("an operator's connection ended: {error}");
            }
        });
    }
}

async fn respond(
    request: Request<RequestBody>,
    by: Operator,
    desk: Arc<Desk>,
    budget: Arc<ByteBudget>,
) -> Response<Full<Bytes>> {
    let answer = match question(request, &budget).await {
        Ok(question) => desk.answer(question, by).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(bytes) => response(StatusCode::OK, bytes),
        Err(Refused { status, failure }) => response(status, json(&failure)),
    }
}

async fn question(
    request: Request<RequestBody>,
    budget: &Arc<ByteBudget>,
) -> Result<Question, Refused> {
    if request.method() != Method::POST || request.uri().path() != "/" {
        return Err(Refused::invalid("send POST / with a JSON object"));
    }
    let mut body = request.into_body();
    body.limit(QUESTION_BYTES_MAX).map_err(|error| Refused::unread(&error))?;
    let bytes = body.read(budget).await.map_err(|error| Refused::unread(&error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Refused::invalid(&format!("this is not a valid question: {error}")))
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("texts and numbers are JSON")
}

fn response(status: StatusCode, bytes: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(bytes.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
