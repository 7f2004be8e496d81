//! One market socket: reads the client's messages, and writes the frames that the state has queued.

use std::sync::Arc;
use std::time::Duration;

use fastwebsockets::{OpCode, Role, WebSocket};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::deliver::Out;
use super::server::Shared;

/// The most frames in one write.
const BATCH_FRAMES_MAX: usize = 256;

/// The largest message of a client: 500 tokens of 80 bytes each, with room to spare.
const CLIENT_MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Runs a socket until either side ends it.
pub(crate) async fn run(shared: Arc<Shared>, stream: Upgraded) {
    let (id, outgoing) = shared.state.lock().open_socket();
    let (reading, writing) = tokio::io::split(TokioIo::new(stream));
    tokio::select! {
        () = read(&shared, id, reading) => {}
        () = write(outgoing, writing) => {}
    }
    shared.state.lock().close_socket(id);
}

async fn read(shared: &Shared, id: u64, stream: impl AsyncRead + Unpin) {
    let joined = tokio::io::join(stream, tokio::io::sink());
    let mut socket = WebSocket::after_handshake(joined, Role::Server);
    socket.set_auto_close(false);
    socket.set_auto_pong(false);
    socket.set_max_message_size(CLIENT_MESSAGE_BYTES_MAX);
    let (ping_patience, subscribe_patience): (Duration, Duration) = {
        let state = shared.state.lock();
        (state.options.ping_patience, state.options.subscribe_patience)
    };
    let opened = Instant::now();
    let mut last_ping = opened;
    let mut is_subscribed = false;
    loop {
        let until = last_ping + ping_patience;
        let until = if is_subscribed { until } else { until.min(opened + subscribe_patience) };
        let Ok(frame) = timeout_at(until, socket.read_frame()).await else {
            shared.state.lock().violation(format!("socket {id} was silent for too long"));
            return;
        };
        match frame {
            Ok(frame) if frame.opcode == OpCode::Text => {
                let Ok(text) = std::str::from_utf8(&frame.payload) else { return };
                if text == "PING" {
                    last_ping = Instant::now();
                }
                let mut state = shared.state.lock();
                state.receive(id, text);
                is_subscribed = state.sockets.get(&id).is_some_and(|socket| socket.is_subscribed);
            }
            Ok(frame) if frame.opcode == OpCode::Close => return,
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

async fn write(mut outgoing: Receiver<Out>, mut stream: impl AsyncWrite + Unpin) {
    let mut batch = Vec::with_capacity(BATCH_FRAMES_MAX);
    let mut bytes = Vec::new();
    while outgoing.recv_many(&mut batch, BATCH_FRAMES_MAX).await > 0 {
        bytes.clear();
        let mut is_half_closed = false;
        for out in batch.drain(..) {
            match out {
                Out::Frame(frame) => bytes.extend_from_slice(&frame),
                Out::Late(at, frame) => {
                    if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                    bytes.clear();
                    sleep_until(at).await;
                    bytes.extend_from_slice(&frame);
                }
                Out::HalfClose => is_half_closed = true,
            }
        }
        if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if is_half_closed {
            let _ = stream.shutdown().await;
            // The connection lives until the client or the test ends it.
            while outgoing.recv().await.is_some() {}
        }
    }
}
