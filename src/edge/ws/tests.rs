use std::convert::Infallible;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::ws::close::CloseReason;
use crate::ws::connection::{Ended, refuse};

/// Upgrades and refuses at once, or answers with the reason for not upgrading.
async fn answer(mut request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    Ok(match upgrade(&mut request) {
        Ok((response, upgrading)) => {
            tokio::spawn(async move {
                let stream = TokioIo::new(upgrading.done().await.expect("the response was sent"));
                let ended = refuse(stream, CloseReason::TooManySockets).await;
                assert_eq!(ended, Ended::Closed(CloseReason::TooManySockets));
            });
            response.map(|_| String::new())
        }
        Err(error) => Response::builder().status(400).body(error.to_string()).unwrap(),
    })
}

/// Everything the server sends in response to these header lines, until the connection ends.
async fn exchange(header_lines: &str) -> Vec<u8> {
    exchange_over("HTTP/1.1", header_lines).await
}

async fn exchange_over(version: &str, header_lines: &str) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(4096);
    let serving = tokio::spawn(
        hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(server), service_fn(answer))
            .with_upgrades(),
    );
    let request = format!("GET /v1/ws/prices {version}\r\nHost: x\r\n{header_lines}\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    serving.await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn a_request_becomes_a_socket() {
    // The key and its digest from RFC 6455, section 1.3.
    let answer = exchange(
        "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    )
    .await;
    let head_len = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(answer[..head_len].to_ascii_lowercase()).unwrap();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
    let close = &answer[head_len..];
    assert_eq!(close[0], 0x88);
    assert_eq!(close[2..4], 4002_u16.to_be_bytes());
}

#[tokio::test]
async fn a_request_that_is_no_upgrade_gets_http() {
    let upgrade = "Connection: Upgrade, close\r\nUpgrade: websocket\r\n";
    let version = "Sec-WebSocket-Version: 13\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let with_key = |key| format!("{upgrade}Sec-WebSocket-Key: {key}\r\n{version}");
    for (header_lines, error) in [
        ("Connection: close\r\n".to_owned(), UpgradeError::NotAnUpgrade),
        (format!("{upgrade}Sec-WebSocket-Version: 13\r\n"), UpgradeError::MissingKey),
        (format!("{upgrade}{key}"), UpgradeError::UnsupportedVersion),
        (format!("{upgrade}{key}Sec-WebSocket-Version: 8\r\n"), UpgradeError::UnsupportedVersion),
        (format!("{upgrade}{key}{key}{version}"), UpgradeError::InvalidKey),
        (format!("{upgrade}Sec-WebSocket-Key:\r\n{version}"), UpgradeError::InvalidKey),
        (format!("{upgrade}Sec-WebSocket-Key: x\r\n{version}"), UpgradeError::InvalidKey),
        // Without padding, of 15 bytes, of 17, of 18, and with bits beyond the 16th byte.
        (with_key("dGhlIHNhbXBsZSBub25jZQ"), UpgradeError::InvalidKey),
        (with_key("dGhlIHNhbXBsZSBub25j"), UpgradeError::InvalidKey),
        (with_key("dGhlIHNhbXBsZSBub25jZQA="), UpgradeError::InvalidKey),
        (with_key("dGhlIHNhbXBsZSBub25jZQAA"), UpgradeError::InvalidKey),
        (with_key("dGhlIHNhbXBsZSBub25jZR=="), UpgradeError::InvalidKey),
    ] {
        let answer = String::from_utf8(exchange(&header_lines).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(answer.ends_with(&error.to_string()), "{answer}");
    }
}

/// As nginx sends a request for a socket unless it is told to speak HTTP/1.1.
#[tokio::test]
async fn http_1_0_has_no_sockets() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (header_lines, error) in
        [(upgrade, UpgradeError::HttpTooOld), ("", UpgradeError::NotAnUpgrade)]
    {
        let answer = String::from_utf8(exchange_over("HTTP/1.0", header_lines).await).unwrap();
        assert!(answer.starts_with("HTTP/1.0 400 "), "{answer}");
        assert!(answer.ends_with(&error.to_string()), "{answer}");
    }
}
