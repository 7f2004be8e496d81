//! Finds the client behind trusted proxies.
//!
//! A proxy appends the address of its peer to `X-Forwarded-For`. An entry is only as trustworthy as
//! its author, so the list is read from the end, and only for as long as the author of an entry is
//! trusted. The first address that is not a trusted proxy is the client; entries before it may be
//! forged and are ignored.
//!
//! ```text
//!   X-Forwarded-For: 1.2.3.4, 203.0.113.9, 10.0.0.2     connected: 10.0.0.1
//!                    ignored  the client   a proxy                 a proxy  (trusted: 10.0.0.0/8)
//! ```

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use ipnet::{IpNet, Ipv4Net};

/// Maximum number of entries read; more than any real chain of proxies has.
pub const HOPS_MAX: usize = 32;

pub(super) static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies whose `X-Forwarded-For` is believed.
#[derive(Clone, Default, Debug)]
pub struct TrustedProxies(Box<[TrustedProxy]>);

/// A network in which every address is a trusted proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrustedProxy(IpNet);

/// Why text is not a [`TrustedProxy`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrustedProxyError {
    /// The text is neither an address nor a network.
    #[error("not an address or a network: use, for example, 10.0.0.5, 10.0.0.0/8 or fd00::/8")]
    Form,
    /// An address inside a network, with a prefix length. Either the address or the network may be
    /// meant.
    #[error("the network is {network}: use that, or the address without a length")]
    InsideNetwork {
        /// The network that contains the address.
        network: IpNet,
    },
    /// The network covers all addresses: any client could then claim any address.
    #[error("this would trust every client: list only the networks of your proxies")]
    Everybody,
}

impl TrustedProxies {
    /// Trusts these proxies and no others.
    pub fn new(proxies: &[TrustedProxy]) -> Self {
        Self(proxies.into())
    }

    /// Returns the address of the client that sent a request received from `peer` with these
    /// headers; IPv4-mapped addresses are returned as IPv4. The result is never an address that the
    /// client could forge.
    ///
    /// If a proxy forwards something that is not an address, the proxy itself counts as the client.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut nearest = peer.to_canonical();
        if !self.trusts(nearest) {
            return nearest;
        }
        // Several header lines form one list.
        let lines = headers.get_all(&FORWARDED_FOR).iter().rev().map(HeaderValue::as_bytes);
        let entries = lines.flat_map(|line| line.rsplit(|&byte| byte == b','));
        for entry in entries.take(HOPS_MAX) {
            let Some(address) = address_of(entry) else { break };
            nearest = address;
            if !self.trusts(nearest) {
                break;
            }
        }
        nearest
    }

    /// Whether `peer` sent the header but is not trusted.
    pub fn ignores(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        headers.contains_key(&FORWARDED_FOR) && !self.trusts(peer)
    }

    /// Whether this is the address of a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|proxy| proxy.0.contains(&address))
    }
}

/// Parses the address in an entry. Some proxies add the port, and then put IPv6 addresses in
/// brackets.
fn address_of(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry.trim_ascii()).ok()?;
    let address = text.parse().or_else(|_| match text.strip_prefix('[') {
        Some(rest) if rest.ends_with(']') => rest[..rest.len() - 1].parse().map(IpAddr::V6),
        _ => text.parse().map(|address: SocketAddr| address.ip()),
    });
    address.ok().map(|address| address.to_canonical())
}

impl FromStr for TrustedProxy {
    type Err = TrustedProxyError;

    fn from_str(text: &str) -> Result<Self, TrustedProxyError> {
        let given: IpNet = text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| TrustedProxyError::Form)?;
        let network = given.trunc();
        if network != given {
            return Err(TrustedProxyError::InsideNetwork { network });
        }
        let network = canonical(network);
        if network.prefix_len() == 0 {
            return Err(TrustedProxyError::Everybody);
        }
        Ok(Self(network))
    }
}

/// Turns an IPv4-mapped network into IPv4, since addresses are compared in that form.
fn canonical(network: IpNet) -> IpNet {
    const MAPPED_BITS: u8 = 96;
    let IpNet::V6(mapped) = network else { return network };
    let (Some(address), Some(length)) =
        (mapped.addr().to_ipv4_mapped(), mapped.prefix_len().checked_sub(MAPPED_BITS))
    else {
        return network;
    };
    Ipv4Net::new(address, length).map_or(network, IpNet::V4)
}

/// Writes the format that [`TrustedProxy::from_str`] reads.
impl fmt::Display for TrustedProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(text: &str) -> TrustedProxies {
        let proxies: Vec<_> = text.split_whitespace().map(|one| one.parse().unwrap()).collect();
        TrustedProxies::new(&proxies)
    }

    #[track_caller]
    fn check(trusted: &str, peer: &str, lines: &[&[u8]], expected: &str) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&FORWARDED_FOR, HeaderValue::from_bytes(line).unwrap());
        }
        let client = proxies(trusted).client(peer.parse().unwrap(), &headers);
        assert_eq!(client.to_string(), expected, "{trusted:?}, {peer}, {lines:?}");
    }

    #[test]
    fn the_first_untrusted_address_is_the_client() {
        const CLIENT: &str = "203.0.113.9";
        let private = "10.0.0.0/8 fd00::/8 127.0.0.1";
        for (trusted, peer, lines, expected) in [
            // No proxy is trusted: the header is ignored.
            ("", "192.0.2.1", &[b"203.0.113.9".as_slice()][..], "192.0.2.1"),
            (private, "192.0.2.1", &[b"203.0.113.9"], "192.0.2.1"),
            (private, "11.0.0.1", &[b"10.0.0.1, 10.0.0.2"], "11.0.0.1"),
            // One proxy, with entries that the client forged before it.
            (private, "10.0.0.1", &[b"203.0.113.9"], CLIENT),
            (private, "10.0.0.1", &[b"1.2.3.4, 203.0.113.9"], CLIENT),
            (private, "10.0.0.1", &[b"10.9.9.9,203.0.113.9"], CLIENT),
            (private, "10.0.0.1", &[b"\xff\xfe rubbish, 203.0.113.9"], CLIENT),
            // Several proxies, several header lines.
            (private, "10.0.0.1", &[b"1.2.3.4, 203.0.113.9 , 10.0.0.3,\t10.0.0.2"], CLIENT),
            (private, "10.0.0.1", &[b"1.2.3.4", b"203.0.113.9", b"10.0.0.2"], CLIENT),
            (private, "10.0.0.1", &[b"1.2.3.4, 203.0.113.9", b"fd12::7, 10.0.0.2"], CLIENT),
            // All addresses in the list are trusted: the first one is the client.
            (private, "10.0.0.1", &[b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            (private, "127.0.0.1", &[], "127.0.0.1"),
            (private, "127.0.0.2", &[b"203.0.113.9"], "127.0.0.2"),
            // Not an address: the proxy that forwarded it counts.
            (private, "10.0.0.1", &[b""], "10.0.0.1"),
            (private, "10.0.0.1", &[b"unknown"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"203.0.113.9, unknown"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"203.0.113.9, unknown, 10.0.0.2"], "10.0.0.2"),
            (private, "10.0.0.1", &[b"203.0.113.9,"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"203.0.113.9", b""], "10.0.0.1"),
            (private, "10.0.0.1", &[b"203.0.113.9, \xff"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"203.0.113.009"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"203.0.113.9 10.0.0.2"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"fe80::1%eth0"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"for=203.0.113.9"], "10.0.0.1"),
            // With ports, as some proxies add them.
            (private, "10.0.0.1", &[b"1.2.3.4:1, 203.0.113.9:51234"], CLIENT),
            (private, "10.0.0.1", &[b"[2001:db8::1]:443"], "2001:db8::1"),
            (private, "10.0.0.1", &[b"[2001:db8::1]"], "2001:db8::1"),
            (private, "10.0.0.1", &[b"[203.0.113.9]"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"[2001:db8::1"], "10.0.0.1"),
            (private, "10.0.0.1", &[b"["], "10.0.0.1"),
            (private, "10.0.0.1", &[b"203.0.113.9:65536"], "10.0.0.1"),
            // IPv6, and IPv4-mapped IPv6.
            (private, "fd00::1", &[b"2001:db8::1, fd00::2"], "2001:db8::1"),
            (private, "::ffff:10.0.0.1", &[b"::ffff:203.0.113.9"], CLIENT),
            (private, "::ffff:10.0.0.1", &[b"203.0.113.9, ::ffff:10.0.0.2"], CLIENT),
            ("::ffff:10.0.0.0/104", "10.0.0.1", &[b"203.0.113.9"], CLIENT),
            ("::/1", "10.0.0.1", &[b"203.0.113.9"], "10.0.0.1"),
        ] {
            check(trusted, peer, lines, expected);
        }
    }

    #[test]
    fn the_number_of_entries_read_is_bounded() {
        let chain = |hop_count: usize| ["203.0.113.9, ", &"10.0.0.2,".repeat(hop_count)].concat();
        for (hop_count, expected) in [(HOPS_MAX - 1, "203.0.113.9"), (HOPS_MAX, "10.0.0.2")] {
            let text = chain(hop_count);
            check("10.0.0.0/8", "10.0.0.1", &[text.trim_end_matches(',').as_bytes()], expected);
        }
    }

    #[test]
    fn a_proxy_is_an_address_or_a_network() {
        let inside = |network: &str| {
            Err(TrustedProxyError::InsideNetwork { network: network.parse().unwrap() })
        };
        for (text, expected) in [
            ("10.0.0.0/8", Ok("10.0.0.0/8")),
            ("10.0.0.5", Ok("10.0.0.5/32")),
            ("fd00::/8", Ok("fd00::/8")),
            ("::1", Ok("::1/128")),
            ("::ffff:10.0.0.0/104", Ok("10.0.0.0/8")),
            ("::ffff:10.0.0.5", Ok("10.0.0.5/32")),
            ("10.0.0.5/8", inside("10.0.0.0/8")),
            ("fd00::1/64", inside("fd00::/64")),
            ("0.0.0.0/0", Err(TrustedProxyError::Everybody)),
            ("::/0", Err(TrustedProxyError::Everybody)),
            ("::ffff:0.0.0.0/96", Err(TrustedProxyError::Everybody)),
            ("", Err(TrustedProxyError::Form)),
            ("10.0.0.0/33", Err(TrustedProxyError::Form)),
            ("10.0.0", Err(TrustedProxyError::Form)),
            ("proxy.example", Err(TrustedProxyError::Form)),
            ("10.0.0.1:80", Err(TrustedProxyError::Form)),
        ] {
            let found = text.parse::<TrustedProxy>().map(|proxy| proxy.to_string());
            assert_eq!(found, expected.map(str::to_owned), "{text:?}");
        }
    }
}
