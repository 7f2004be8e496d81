use tokio::net::TcpListener;

use super::*;

/// The client's result for a response that arrives in these pieces.
async fn receive(pieces: &[&[u8]]) -> Result<(u16, Vec<u8>, usize), ClientError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut request = [0; 4];
        stream.read_exact(&mut request).await.unwrap();
        for piece in pieces {
            // The client hangs up early once it has found an error.
            if stream.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    let client = async {
        let mut connection = Connection::open(address).await.unwrap();
        connection
            .exchange(b"ask\n")
            .await
            .map(|response| (response.status, response.body.to_vec(), response.byte_count))
    };
    tokio::join!(server, client).1
}

const FULL: &[u8] =
    b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\ncontent-LENGTH:  5 \r\n\r\nhello";

#[tokio::test]
async fn a_response_may_arrive_in_any_two_pieces() {
    for split in 1..FULL.len() {
        let received = receive(&[&FULL[..split], &FULL[split..]]).await.unwrap();
        assert_eq!(received, (404, b"hello".to_vec(), FULL.len()), "split after {split} bytes");
    }
}

#[tokio::test]
async fn a_body_may_be_longer_than_one_read() {
    let body = vec![b'x'; 3 * READ_BYTES + 1];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let (status, received, byte_count) = receive(&[head.as_bytes(), &body]).await.unwrap();
    assert_eq!((status, byte_count), (200, head.len() + body.len()));
    assert_eq!(received, body);
}

#[tokio::test]
async fn a_server_that_hangs_up_is_an_error() {
    let error = receive(&[&FULL[..FULL.len() - 1]]).await.unwrap_err();
    let expected = FULL.len() - 1;
    assert!(matches!(error, ClientError::Closed { byte_count } if byte_count == expected));
}

#[test]
fn a_request_states_the_length_of_its_body() {
    let host: SocketAddr = "127.0.0.1:8080".parse().unwrap();
    assert_eq!(
        encode_request("POST", "/trade", host, &[("X-API-Key", "k")], "{}"),
        "POST /trade HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nX-API-Key: k\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    );
    assert_eq!(
        encode_request("GET", "/", host, &[], ""),
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"
    );
}
