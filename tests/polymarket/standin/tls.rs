//! The server side of TLS, with the certificate in `tests/fixtures/tls`.

use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

fn fixtures() -> PathBuf {
    super::repository().join("tests/fixtures/tls")
}

/// The PEM file of the authority that signed the certificate.
pub(crate) fn authority_path() -> PathBuf {
    fixtures().join("authority.pem")
}

/// The configuration for `localhost` and `127.0.0.1`.
pub(crate) fn server_config() -> Arc<ServerConfig> {
    let chain = CertificateDer::from_pem_file(fixtures().join("localhost.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(fixtures().join("localhost.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .unwrap();
    Arc::new(config)
}

/// An accepted connection; the handshake happens on the first read.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    tls: ServerConnection,
}

impl TlsStream {
    pub(crate) fn new(tcp: TcpStream, config: Arc<ServerConfig>) -> Self {
        Self { tcp, tls: ServerConnection::new(config).unwrap() }
    }

    /// Writes what the session has queued.
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            ready!(self.tcp.poll_write_ready(context))?;
            match self.tls.write_tls(&mut Tcp(&self.tcp)) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads and writes without blocking.
struct Tcp<'a>(&'a TcpStream);

impl io::Read for Tcp<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl io::Write for Tcp<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.try_write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match this.tls.reader().read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer left without a `close_notify`: the caller sees the end of the stream.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready(Ok(()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            if let Poll::Ready(Err(error)) = this.poll_drain(context) {
                return Poll::Ready(Err(error));
            }
            ready!(this.tcp.poll_read_ready(context))?;
            match this.tls.read_tls(&mut Tcp(&this.tcp)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Poll::Ready(Err(error)),
            }
            if let Err(error) = this.tls.process_new_packets() {
                // Send the alert, if it goes out at once.
                let _ = this.poll_drain(context);
                return Poll::Ready(Err(io::Error::other(error)));
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let count = this.tls.writer().write(buffer)?;
            let drained = this.poll_drain(context)?;
            if count > 0 || buffer.is_empty() {
                return Poll::Ready(Ok(count));
            }
            ready!(drained);
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tls.send_close_notify();
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.tcp).poll_shutdown(context)
    }
}
