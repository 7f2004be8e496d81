//! Credentials of wallets. A wallet signs headers (L1) to get a key, a secret and a passphrase, and
//! with these it signs everything else (L2).

use hyper::header::{HeaderMap, HeaderValue};

use super::{Awaited, object};
use crate::http::call::Call;
use crate::http::error::{ClobError, ClobRefusal};
use crate::http::json::write::{write_list, write_text};
use crate::http::reply::Reply;
use paperbourse_clob::credentials::Credentials;
use paperbourse_clob::signature::{ClobAuth, L1Headers};
use paperbourse_exchange::auth::wallet::L2Headers;

/// The header that names the API key of a wallet.
const API_KEY: &str = "poly_api_key";

/// Returns the credentials for the nonce that the wallet has signed. The first call opens the
/// wallet's account. The venue refuses a nonce that already has credentials; clients then derive
/// them, but not all of them do, so here both are the same.
pub(super) async fn create(call: &Call<'_>) -> Awaited {
    let auth = verify(call).await?;
    let credentials = call.service().wallet_credentials(&auth, call.context).await?;
    Ok(reply(&credentials))
}

/// Returns the credentials that the wallet has for the nonce that it has signed.
pub(super) async fn derive(call: &Call<'_>) -> Awaited {
    let auth = verify(call).await?;
    let credentials = call.service().find_wallet_credentials(&auth, call.context).await?;
    Ok(reply(&credentials.ok_or(ClobError::NO_CREDENTIALS)?))
}

pub(super) async fn list(call: &Call<'_>) -> Awaited {
    let keys = call.service().api_keys(&call.caller, call.context).await?;
    Ok(object(|body| {
        write_list(body.value("apiKeys"), keys, |out, key| write_text(out, &key));
    }))
}

/// Revokes the key that has signed the request.
pub(super) async fn delete(call: &Call<'_>) -> Awaited {
    call.service().delete_api_key(&call.caller, call.context).await?;
    Ok(Reply::ok(&"OK"))
}

/// Verifies the headers with which a wallet proves itself.
async fn verify(call: &Call<'_>) -> Result<ClobAuth, ClobRefusal> {
    let headers = L1Headers {
        address: value(&call.head.headers, "poly_address"),
        signature: value(&call.head.headers, "poly_signature"),
        timestamp: value(&call.head.headers, "poly_timestamp"),
        nonce: value(&call.head.headers, "poly_nonce"),
    };
    let (address, moment) = (call.context.address, call.context.moment);
    Ok(call.service().verify_wallet(&headers, address, moment).await?)
}

fn reply(credentials: &Credentials) -> Reply {
    object(|body| {
        body.text("apiKey", &credentials.api_key());
        body.text("secret", &credentials.secret());
        body.text("passphrase", &credentials.passphrase());
    })
}

/// Whether a request names the API key of a wallet.
pub(in crate::http) fn names_wallet_key(headers: &HeaderMap) -> bool {
    headers.contains_key(API_KEY)
}

/// Returns the headers of a request that a wallet has signed with its credentials, or `None` if no
/// key was sent.
pub(in crate::http) fn l2_headers(headers: &HeaderMap) -> Option<L2Headers<'_>> {
    Some(L2Headers {
        api_key: headers.get(API_KEY)?.as_bytes(),
        address: value(headers, "poly_address"),
        passphrase: value(headers, "poly_passphrase"),
        timestamp: value(headers, "poly_timestamp"),
        signature: value(headers, "poly_signature"),
    })
}

/// Returns the value of a header, or nothing if it was not sent.
fn value<'a>(headers: &'a HeaderMap, name: &str) -> &'a [u8] {
    headers.get(name).map_or(&[], HeaderValue::as_bytes)
}
