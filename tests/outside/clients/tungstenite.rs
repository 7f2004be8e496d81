//! The sockets through `tokio-tungstenite`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::Report;

type Socket = WebSocketStream<TcpStream>;

/// A client on a thread of its own.
pub(super) struct Listener {
    last: oneshot::Sender<u64>,
    thread: JoinHandle<Report>,
}

impl Listener {
    /// Opens both sockets and waits until every market has a price.
    pub(super) fn start(address: SocketAddr, key: &str, markets: &[String]) -> Self {
        let (last, told) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let (key, markets) = (key.to_owned(), markets.to_vec());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(listen(address, &key, &markets, ready, told))
        });
        is_ready.recv().unwrap();
        Self { last, thread }
    }

    /// Waits for the fill of the last order, and closes both sockets.
    pub(super) fn end(self, last_order: u64) -> Report {
        self.last.send(last_order).unwrap();
        self.thread.join().unwrap()
    }
}

async fn open(address: SocketAddr, path: &str, key: &str) -> Socket {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    request.headers_mut().insert("x-api-key", key.parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    client_async(request, stream).await.unwrap().0
}

/// The next text; answers pings on the way.
async fn text(socket: &mut Socket) -> Value {
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Text(text) => return serde_json::from_str(text.as_str()).unwrap(),
            Message::Ping(_) | Message::Pong(_) => {}
            other => panic!("neither a text nor a ping: {other:?}"),
        }
    }
}

async fn listen(
    address: SocketAddr,
    key: &str,
    markets: &[String],
    ready: mpsc::Sender<()>,
    mut told: oneshot::Receiver<u64>,
) -> Report {
    let mut of_prices = open(address, "/v1/ws/prices", key).await;
    let mut of_fills = open(address, "/v1/ws/executions", key).await;
    let subscription = json!({"action": "subscribe", "markets": markets}).to_string();
    of_prices.send(Message::text(subscription)).await.unwrap();
    let mut seq = text(&mut of_fills).await["seq"].as_u64().unwrap();
    let mut newest: HashMap<String, u64> = HashMap::new();
    let (mut prices, mut orders, mut last) = (0, Vec::new(), None);
    while last.is_none() || orders.last().copied() != last {
        tokio::select! {
            frame = text(&mut of_prices) => if frame["type"] == "price" {
                let market = frame["condition_id"].as_str().unwrap().to_owned();
                let before = newest.insert(market, frame["seq"].as_u64().unwrap());
                assert!(frame["seq"].as_u64() > before, "{before:?}: {frame}");
                prices += 1;
                if newest.len() == markets.len() {
                    // The test has stopped to listen once it knows.
                    let _ = ready.send(());
                }
            },
            frame = text(&mut of_fills) => if frame["type"] == "fill" {
                seq += 1;
                assert_eq!(frame["seq"], seq, "{frame}");
                orders.push(frame["order_id"].as_u64().unwrap());
            },
            order = &mut told, if last.is_none() => last = Some(order.unwrap()),
        }
    }
    Report { prices, orders, closes: vec![close(of_prices).await, close(of_fills).await] }
}

/// Closes a socket, and returns the code that the server sends back.
async fn close(mut socket: Socket) -> u64 {
    socket.close(Some(CloseFrame { code: 1000.into(), reason: "".into() })).await.unwrap();
    loop {
        if let Message::Close(frame) = socket.next().await.unwrap().unwrap() {
            return u16::from(frame.unwrap().code).into();
        }
    }
}
