//! The caller's trace, from a request's `traceparent` header (W3C Trace Context).

/// The length of a version 0 header, in bytes. Headers of later versions start the same way.
const VERSION_LENGTH: usize = 55;

/// The caller's span, which is the parent of the request's own span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The id of the trace, never 0.
    pub trace_id: [u8; 16],
    /// The id of the span that sent the request, never 0.
    pub span_id: [u8; 8],
    /// Whether the caller samples the trace.
    pub is_sampled: bool,
}

impl Parent {
    /// Parses a `traceparent`: `00-TRACE_ID-SPAN_ID-FLAGS`, all in lower-case hexadecimal digits.
    /// `None` if it is malformed, in which case the header must be ignored.
    pub fn from_header(header: &[u8]) -> Option<Self> {
        let (first, more) = header.split_at_checked(VERSION_LENGTH)?;
        let [version] = bytes(&first[..2])?;
        let is_known = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more[0] == b'-',
        };
        let is_separated = [2, 35, 52].iter().all(|&at| first[at] == b'-');
        let trace_id = bytes(&first[3..35])?;
        let span_id = bytes(&first[36..52])?;
        let [flags] = bytes(&first[53..])?;
        let is_valid = is_known && is_separated && trace_id != [0; 16] && span_id != [0; 8];
        is_valid.then_some(Self { trace_id, span_id, is_sampled: flags & 1 == 1 })
    }
}

/// Decodes two hexadecimal digits per byte.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_the_standard_says() {
        const IDS: &str = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
        for (header, expected) in [
            (format!("00-{IDS}-01"), Some(true)),
            (format!("00-{IDS}-00"), Some(false)),
            // Other flags have no meaning here.
            (format!("00-{IDS}-03"), Some(true)),
            (format!("00-{IDS}-fe"), Some(false)),
            // A later version may have more fields.
            (format!("01-{IDS}-01"), Some(true)),
            (format!("cc-{IDS}-01-more"), Some(true)),
            (format!("cc-{IDS}-01.more"), None),
            (format!("00-{IDS}-01-more"), None),
            (format!("ff-{IDS}-01"), None),
            (format!("00-{}-01", IDS.to_uppercase()), None),
            (format!("00-{IDS}-0"), None),
            (format!("00-{IDS}-0g"), None),
            (format!("00_{IDS}-01"), None),
            (format!("00-{}-01", IDS.replace('-', "_")), None),
            (format!("00-{}-{}-01", "0".repeat(32), &IDS[33..]), None),
            (format!("00-{}-{}-01", &IDS[..32], "0".repeat(16)), None),
            (String::new(), None),
        ] {
            let parent = Parent::from_header(header.as_bytes());
            assert_eq!(parent.map(|parent| parent.is_sampled), expected, "{header}");
            if let Some(Parent { trace_id, span_id, .. }) = parent {
                assert_eq!((trace_id[0], trace_id[15]), (0x0a, 0x9c));
                assert_eq!(u64::from_be_bytes(span_id), 0xb7ad_6b71_6920_3331);
            }
        }
    }
}
