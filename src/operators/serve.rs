//! Serves the operators' socket. Each connection asks one question. Until it has asked, a newer
//! connection may replace it, so that stalled connections cannot lock an operator out.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::{Notify, Semaphore};

use super::answer::{Desk, Refused};
use super::user::operator;
use super::{OperatorSocket, Question};
use crate::engine::admin::standing::Operator;
use crate::http::app::AppState;
use crate::http::body::RequestBody;
use crate::http::connection::{Deadlines, Ending, serve_connection};
use crate::limits::budget::ByteBudget;

/// Maximum number of concurrent connections.
const CONNECTIONS_MAX: usize = 8;

/// Maximum time that a connection may stay idle.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Maximum size of a question, in bytes.
const QUESTION_BYTES_MAX: usize = 16 * 1024;

/// Returns a future that serves operators until the process ends.
pub fn serve(
    socket: &OperatorSocket,
    app: &Arc<AppState>,
) -> io::Result<impl Future<Output = ()> + Send + use<>> {
    let listener = UnixListener::from_std(socket.listener()?)?;
    let desk = Arc::new(Desk { app: app.clone(), waiters: app.journal.register() });
    Ok(async move {
        tokio::select! {
            () = desk.waiters.run() => {}
            () = accept(listener, desk.clone()) => {}
        }
    })
}

async fn accept(listener: UnixListener, desk: Arc<Desk>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let silent = Arc::new(Silent::default());
    let budget = ByteBudget::new(CONNECTIONS_MAX * QUESTION_BYTES_MAX);
    loop {
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
        if slots.available_permits() == 0 {
            silent.dismiss_oldest();
        }
        // Waits only if every connection has asked its question, and only until one of the
        // questions is answered.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let (desk, budget, asker) = (desk.clone(), budget.clone(), Asker::new(silent.clone()));
        tokio::spawn(async move {
            // The slot is dropped last, when the asker no longer counts as silent.
            let (_slot, asker) = (slot, asker);
            let respond =
                |request| respond(request, by.clone(), desk.clone(), budget.clone(), &asker);
            let deadlines = Deadlines { idle: IDLE_MAX, ..Deadlines::default() };
            let served =
                serve_connection(stream, deadlines, None, respond, asker.dismissed()).await;
            if let Err(error) = served {
                tracing::debug!("an operator's connection ended: {error}");
            }
        });
    }
}

/// The connections that have not asked anything yet, oldest first.
#[derive(Default)]
struct Silent(Mutex<VecDeque<Arc<Notify>>>);

impl Silent {
    fn dismiss_oldest(&self) {
        if let Some(oldest) = self.0.lock().pop_front() {
            oldest.notify_one();
        }
    }
}

/// A connection, listed in [`Silent`] until it asks its question or ends.
struct Asker {
    silent: Arc<Silent>,
    dismissal: Arc<Notify>,
}

impl Asker {
    fn new(silent: Arc<Silent>) -> Self {
        let dismissal = Arc::new(Notify::new());
        silent.0.lock().push_back(dismissal.clone());
        Self { silent, dismissal }
    }

    /// Removes the connection from [`Silent`], after which it cannot be dismissed. Returns false if
    /// it was dismissed before or has already asked.
    fn asks(&self) -> bool {
        let mut silent = self.silent.0.lock();
        let place = silent.iter().position(|other| Arc::ptr_eq(other, &self.dismissal));
        place.and_then(|place| silent.remove(place)).is_some()
    }

    async fn dismissed(&self) -> Ending {
        self.dismissal.notified().await;
        Ending::Abrupt
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.asks();
    }
}

async fn respond(
    request: Request<RequestBody>,
    by: Operator,
    desk: Arc<Desk>,
    budget: Arc<ByteBudget>,
    asker: &Asker,
) -> Response<Full<Bytes>> {
    let question = question(request, &budget).await;
    if !asker.asks() {
        // The connection is about to close, so do not start work whose answer would be lost.
        return pending().await;
    }
    let answer = match question {
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
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
