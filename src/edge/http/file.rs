//! Static files that change only with the binary. They are compressed for clients that accept gzip,
//! and not sent again to clients that already have them.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_NONE_MATCH, VARY,
};

use super::reply::Reply;

/// A static file, kept both uncompressed and compressed.
#[derive(Debug)]
pub(super) struct File {
    /// The headers of every answer with this file.
    headers: HeaderMap,
    tag: HeaderValue,
    // Shared by all answers: many may be in flight at a time, and clients may read them slowly.
    body: Bytes,
    gzipped: Bytes,
}

impl File {
    /// Creates a file of this media type.
    pub(super) fn new(kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        let body: Vec<u8> = body.into();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&body).expect("a vector takes all bytes");
        let gzipped = encoder.finish().expect("a vector takes all bytes");
        // Weak, because it is the same for both encodings.
        let tag = format!("W/\"{:08x}-{}\"", crc32c::crc32c(&body), body.len());
        let tag = HeaderValue::try_from(tag).expect("digits are visible ASCII");
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static(kind)),
            (ETAG, tag.clone()),
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (VARY, HeaderValue::from_static("accept-encoding")),
        ]);
        Self { headers, tag, body: body.into(), gzipped: gzipped.into() }
    }

    /// Adds a header to every answer for this file.
    pub(super) fn header(mut self, (name, value): (HeaderName, HeaderValue)) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Returns the file, or 304 if the request says that the client already has it.
    pub(super) fn reply(&self, request: &HeaderMap) -> Reply {
        let mut headers = self.headers.clone();
        if self.is_held(request) {
            headers.remove(CONTENT_TYPE);
            return Reply { headers, ..Reply::json(StatusCode::NOT_MODIFIED, Vec::new()) };
        }
        let body = if accepts_gzip(request) {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            &self.gzipped
        } else {
            &self.body
        };
        let body = Full::new(body.clone()).into();
        Reply { headers, instead: Some(body), ..Reply::json(StatusCode::OK, Vec::new()) }
    }

    /// Returns the size of the compressed file, which is what most clients are sent.
    #[cfg(test)]
    pub(super) fn gzipped_bytes(&self) -> usize {
        self.gzipped.len()
    }

    fn is_held(&self, request: &HeaderMap) -> bool {
        let opaque = |tag: &str| tag.strip_prefix("W/").unwrap_or(tag).to_owned();
        let own = self.tag.to_str().map(opaque).expect("the tag is visible ASCII");
        items(request, &IF_NONE_MATCH).any(|tag| tag == "*" || opaque(tag) == own)
    }
}

/// Whether a client accepts gzip. Without `Accept-Encoding`, the file is sent uncompressed.
fn accepts_gzip(request: &HeaderMap) -> bool {
    items(request, &ACCEPT_ENCODING).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        let is_refused = weight.parse::<f32>().is_ok_and(|weight| weight <= 0.0);
        name.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

/// Returns the items of a header that holds a list, from all of its lines.
pub(super) fn items<'r>(
    request: &'r HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'r str> {
    let lines = request.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::http::connection::ReplyBody;
    use crate::http::reply::{RequestId, response_of};

    const TEXT: &str = "the same for everyone";

    fn reply(name: HeaderName, value: &'static str) -> Reply {
        let request = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        File::new("text/plain", TEXT).reply(&request)
    }

    /// Returns the body as a connection receives it.
    async fn sent(reply: Reply) -> Bytes {
        let response = response_of(reply, &RequestId::Ours(1), None, HeaderMap::new());
        let ReplyBody::Whole(body, _) = response.into_body() else { panic!("a file is no stream") };
        let Ok(body) = body.collect().await;
        body.to_bytes()
    }

    #[tokio::test]
    async fn all_answers_share_the_bytes_of_the_file() {
        let file = File::new("text/plain", TEXT);
        for accepted in ["identity", "gzip"] {
            let accepted = HeaderValue::from_static(accepted);
            let request = HeaderMap::from_iter([(ACCEPT_ENCODING, accepted)]);
            let (one, other) = (sent(file.reply(&request)).await, sent(file.reply(&request)).await);
            assert!(!one.is_empty());
            assert_eq!(one.as_ptr_range(), other.as_ptr_range());
        }
    }

    #[tokio::test]
    async fn only_a_client_that_accepts_gzip_gets_it() {
        for (accepted, is_gzipped) in [
            ("", false),
            ("identity", false),
            ("br, zstd", false),
            ("xgzip", false),
            ("gzip;q=0", false),
            ("gzip; q=0.000", false),
            ("gzip", true),
            ("GZIP", true),
            ("br;q=1.0,gzip ; q=0.1", true),
            ("gzip, deflate, br, zstd", true),
        ] {
            let reply = reply(ACCEPT_ENCODING, accepted);
            assert_eq!(reply.status, StatusCode::OK);
            assert_eq!(reply.headers.contains_key(CONTENT_ENCODING), is_gzipped, "{accepted:?}");
            let body = sent(reply).await;
            let mut text = String::new();
            if is_gzipped {
                GzDecoder::new(&*body).read_to_string(&mut text).unwrap();
            } else {
                text = String::from_utf8(body.to_vec()).unwrap();
            }
            assert_eq!(text, TEXT, "{accepted:?}");
        }
    }

    #[tokio::test]
    async fn a_client_that_has_the_file_does_not_get_it_again() {
        for (held, status) in [
            ("*", 304),
            (r#"W/"65ff91ec-21""#, 304),
            (r#""65ff91ec-21""#, 304),
            (r#""old", W/"65ff91ec-21""#, 304),
            ("65ff91ec-21", 200),
            (r#"W/"65ff91ec-22""#, 200),
            ("", 200),
        ] {
            let reply = reply(IF_NONE_MATCH, held);
            assert_eq!(reply.status, status, "{held}");
            assert_eq!(reply.headers[ETAG], r#"W/"65ff91ec-21""#);
            assert_eq!(sent(reply).await.is_empty(), status == 304, "{held}");
        }
    }
}
