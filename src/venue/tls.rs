//! The certificates that this process trusts as a TLS client.
//!
//! Uses one crypto library, aws-lc-rs, and trusts the system's certificate authorities or those in
//! a file. Opens no connections.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// The trusted certificate authorities.
#[derive(Clone, Copy, Debug)]
pub enum Roots<'a> {
    /// No authority, for a client that speaks only plain HTTP on this machine.
    Nobody,
    /// The authorities that the system trusts.
    System,
    /// Only the authorities in this PEM file.
    File(&'a Path),
}

/// An error from loading the trusted authorities.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The system has no usable certificates.
    #[error(
        "this system trusts no certificate authority: install its certificate package \
             (ca-certificates), or name a file with the authorities to trust{reason}"
    )]
    NoSystemRoots {
        /// The first error, after a colon; empty if there was none.
        reason: String,
    },
    /// The file or a certificate in it cannot be read.
    #[error("cannot read certificates from {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// The file holds no certificate.
    #[error("{} holds no certificate in PEM", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
}

/// Creates the configuration of a TLS 1.2 or 1.3 client. Blocks on file I/O.
pub fn client_config(roots: Roots<'_>) -> Result<ClientConfig, TlsError> {
    let store = match roots {
        Roots::Nobody => RootCertStore::empty(),
        Roots::System => system_roots()?,
        Roots::File(path) => roots_of_file(path)?,
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(config)
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Systems ship old certificates that no library can parse any more; skip those.
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let reason = found.errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        return Err(TlsError::NoSystemRoots { reason });
    }
    Ok(store)
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, TlsError> {
    let failed = |reason: String| TlsError::File { path: path.into(), reason };
    let content = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&content) {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        store.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if store.is_empty() { Err(TlsError::EmptyFile { path: path.into() }) } else { Ok(store) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTHORITY: &str = include_str!("../../tests/fixtures/tls/authority.pem");

    #[test]
    fn a_file_of_authorities_is_loaded_or_the_error_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, format!("# ours\n{AUTHORITY}{AUTHORITY}")).unwrap();
        client_config(Roots::File(&path)).unwrap();
        for (content, expected) in [
            ("", "holds no certificate in PEM"),
            ("nonsense", "holds no certificate in PEM"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot read"),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = client_config(Roots::File(&path)).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("ca.pem"), "{error}");
        }
        let missing = folder.path().join("missing.pem");
        let error = client_config(Roots::File(&missing)).unwrap_err().to_string();
        assert!(error.contains("cannot read certificates from"), "{error}");
    }

    #[test]
    fn an_empty_set_of_roots_is_allowed() {
        client_config(Roots::Nobody).unwrap();
    }
}
