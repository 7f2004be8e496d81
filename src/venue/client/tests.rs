use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustls::RootCertStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const BYTES_MAX: usize = 10_000;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// Returns the client's result for a response with these headers and this body, and the request it
/// sent.
async fn ask(status: &str, headers: &str, body: &[u8]) -> (Result<Bytes, ClientError>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let roots = RootCertStore::empty();
    let tls = ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_root_certificates(roots)
    .with_no_client_auth();
    let client = Client::new(tls, Duration::from_secs(20), 0);
    let mut answer =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n", body.len())
            .into_bytes();
    answer.extend_from_slice(body);
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = vec![0; 4096];
        let length = stream.read(&mut asked).await.unwrap();
        // The client may hang up early.
        let _ = stream.write_all(&answer).await;
        (String::from_utf8_lossy(&asked[..length]).into_owned(), stream)
    };
    let (result, (asked, _stream)) =
        tokio::join!(client.get(address.parse().unwrap(), BYTES_MAX), serve);
    (result, asked)
}

#[tokio::test]
async fn the_size_limit_applies_to_the_unpacked_document() {
    let whole = vec![b'x'; BYTES_MAX];
    let more = vec![b'x'; BYTES_MAX + 1];
    let bomb = gzip(&vec![0; 5_000_000]);
    assert!(bomb.len() < BYTES_MAX, "the bomb must be small: {}", bomb.len());
    let packed = gzip(&whole);
    let (torn, mut flipped, mut longer) =
        (packed[..packed.len() - 9].to_vec(), packed.clone(), packed.clone());
    *flipped.last_mut().unwrap() ^= 1;
    longer.extend_from_slice(b"more");
    let too_long = "the response is longer than 10000 bytes";
    for (what, encoding, body, expected) in [
        ("plain", "", &whole, Ok(&whole)),
        ("plain by name", "content-encoding: identity\r\n", &whole, Ok(&whole)),
        ("one more", "", &more, Err(too_long)),
        ("gzip", "content-encoding: gzip\r\n", &packed, Ok(&whole)),
        ("one more, packed", "content-encoding: gzip\r\n", &gzip(&more), Err(too_long)),
        ("a bomb", "content-encoding: gzip\r\n", &bomb, Err(too_long)),
        ("the end is missing", "content-encoding: gzip\r\n", &torn, Err("cannot be decoded")),
        ("another checksum", "content-encoding: gzip\r\n", &flipped, Err("cannot be decoded")),
        ("something behind it", "content-encoding: gzip\r\n", &longer, Err("cannot be decoded")),
        ("no gzip", "content-encoding: gzip\r\n", &whole, Err("cannot be decoded")),
        ("brotli", "content-encoding: br\r\n", &whole, Err("its encoding is \"br\"")),
    ] {
        let (result, asked) = ask("200 OK", encoding, body).await;
        match (result, expected) {
            (Ok(document), Ok(expected)) => assert!(document == *expected, "{what}"),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{what}: {error}");
            }
            (result, _) => panic!("{what}: {result:?}"),
        }
        assert!(asked.contains("accept-encoding: gzip\r\n"), "{asked}");
    }
}

#[tokio::test]
async fn retry_after_may_be_seconds_or_a_date() {
    let date = "date: Sun, 22 Nov 2026 12:00:00 GMT\r\n";
    for (headers, expected) in [
        ("", None),
        ("retry-after: 7\r\n", Some(7)),
        ("retry-after: Sun, 22 Nov 2026 12:01:30 GMT\r\n", Some(90)),
        ("retry-after: Sun, 22 Nov 2026 12:00:00 GMT\r\n", Some(0)),
        // A date in the past, and unreadable values.
        ("retry-after: Sun, 22 Nov 2026 11:59:00 GMT\r\n", None),
        ("retry-after: soon\r\n", None),
        ("retry-after: -1\r\n", None),
    ] {
        let (result, _) = ask("429 Too Many Requests", &format!("{date}{headers}"), b"").await;
        let Err(ClientError::Status { retry_after, .. }) = result else { panic!("{result:?}") };
        assert_eq!(retry_after.map(|after| after.as_secs()), expected, "{headers}");
    }
}
