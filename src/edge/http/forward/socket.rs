//! Carries the bytes of a socket between a client and the owner, in both directions.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf,
};
use tokio::time::timeout;

/// Maximum time for the client to take the bytes of one read from the owner.
const WRITE_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum time for the client to close its side once the owner has ended the socket.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Maximum number of bytes read at a time.
const BUFFER_BYTES: usize = 8 * 1024;

/// The first byte of a close frame. If the owner does not recognize the caller, a close frame is
/// the first thing it sends.
const CLOSE: u8 = 0x88;

/// Carries bytes until the owner ends the socket, or the client leaves or stops reading. Calls
/// `recognize` if the owner accepts the credential.
pub(super) async fn carry<Client, Owner>(
    client: Client,
    owner: Owner,
    recognize: impl FnOnce(),
) -> io::Result<()>
where
    Client: AsyncRead + AsyncWrite,
    Owner: AsyncRead + AsyncWrite,
{
    let (mut from_client, to_client) = tokio::io::split(client);
    let (from_owner, mut to_owner) = tokio::io::split(owner);
    let mut up = pin!(async {
        tokio::io::copy(&mut from_client, &mut to_owner).await?;
        // The owner then ends the socket.
        to_owner.shutdown().await
    });
    let mut down = pin!(carry_down(from_owner, to_client, recognize));
    let mut is_up_over = false;
    loop {
        tokio::select! {
            ended = &mut down => {
                ended?;
                break;
            }
            ended = &mut up, if !is_up_over => {
                ended?;
                is_up_over = true;
            }
        }
    }
    if !is_up_over {
        // Bytes that the client still sends must not reset the connection before the client has
        // read everything up to the end.
        let _ = timeout(LINGER_MAX, up).await;
    }
    Ok(())
}

async fn carry_down<Client: AsyncWrite, Owner: AsyncRead>(
    mut from_owner: ReadHalf<Owner>,
    mut to_client: WriteHalf<Client>,
    recognize: impl FnOnce(),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut recognize = Some(recognize);
    loop {
        let count = from_owner.read(&mut buffer).await?;
        if count == 0 {
            return timeout(WRITE_TIME_MAX, to_client.shutdown()).await?;
        }
        if let Some(recognize) = recognize.take()
            && buffer[0] != CLOSE
        {
            recognize();
        }
        timeout(WRITE_TIME_MAX, to_client.write_all(&buffer[..count])).await??;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::ErrorKind;

    use tokio::io::{DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    /// The client's and the owner's end of a socket under test.
    struct Carried {
        client: DuplexStream,
        owner: DuplexStream,
    }

    /// Runs `scenario` with the two ends of a socket. Returns the result of [`carry`], how many
    /// seconds it took, and whether the caller was recognized.
    async fn carried<Done: Future<Output = Carried>>(
        scenario: impl FnOnce(Carried) -> Done,
    ) -> (Result<(), ErrorKind>, u64, bool) {
        let ((client, near), (owner, far)) = (duplex(64), duplex(64));
        let is_known = Cell::new(false);
        let began = Instant::now();
        let carry = async {
            let ended = carry(near, far, || is_known.set(true)).await;
            (ended.map_err(|error| error.kind()), began.elapsed().as_secs())
        };
        // The scenario's ends stay open until the socket has ended.
        let (_open, (ended, seconds)) = tokio::join!(scenario(Carried { client, owner }), carry);
        (ended, seconds, is_known.get())
    }

    async fn is_said(to: &mut DuplexStream, text: &[u8], from: &mut DuplexStream) {
        from.write_all(text).await.unwrap();
        let mut read = vec![0; text.len()];
        to.read_exact(&mut read).await.unwrap();
        assert_eq!(read, text);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_pass_in_both_directions_until_the_client_leaves() {
        let ended = carried(async |Carried { mut client, mut owner }| {
            is_said(&mut client, b"\x81hello", &mut owner).await;
            is_said(&mut owner, b"\x81subscribe", &mut client).await;
            client.shutdown().await.unwrap();
            assert_eq!(owner.read(&mut [0]).await.unwrap(), 0);
            owner.shutdown().await.unwrap();
            Carried { client, owner }
        });
        assert_eq!(ended.await, (Ok(()), 0, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stays_silent_is_left_soon_after_the_owner_has_ended_the_socket() {
        let ended = carried(async |Carried { mut client, mut owner }| {
            is_said(&mut client, b"\x88\x02\x0f\xa0", &mut owner).await;
            owner.shutdown().await.unwrap();
            Carried { client, owner }
        });
        assert_eq!(ended.await, (Ok(()), LINGER_MAX.as_secs(), false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_left() {
        let ended = carried(async |Carried { client, mut owner }| {
            owner.write_all(&[0x81; 64]).await.unwrap();
            owner.write_all(&[0x81; 64]).await.unwrap();
            Carried { client, owner }
        });
        assert_eq!(ended.await, (Err(ErrorKind::TimedOut), WRITE_TIME_MAX.as_secs(), true));
    }
}
