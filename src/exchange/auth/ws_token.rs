//! Tokens that open a socket, for browsers, which cannot send a header with the request.
//!
//! The tokens are stateless: a token contains what it grants, under a MAC whose secret the process
//! generates at startup. A restart therefore invalidates all of them, which costs each client one
//! request. A token can be reused until it expires. It does not show whether its key is still
//! valid; the caller checks that in the key table.
//!
//! ```text
//! |<------------------ 58 bytes, as 116 lowercase hex digits ------------------>|
//! | account id 8 | kind 1 | holder 8 | tier 1 | end 8 | HMAC-SHA-256 of these 32 |
//!
//!   kind 1: requested with a key; the holder is the id of that key
//!   kind 2: requested with an access token; the holder is the time from which that is refused
//! ```
//!
//! Numbers are big-endian; times are nanoseconds since 1970.

use std::fmt;
use std::ops::Range;

use aws_lc_rs::hmac;

use paperbourse_core::ids::{AccountId, KeyId, Timestamp};
use paperbourse_core::limits::tier::Tier;

/// Lifetime of a token, in seconds.
pub const WS_TOKEN_SECONDS: u32 = 60;

/// Length of a token's text, in bytes.
pub const WS_TOKEN_TEXT_BYTES: usize = 2 * TOKEN_BYTES;

const ACCOUNT: Range<usize> = 0..8;
const KIND: usize = ACCOUNT.end;
const HOLDER: Range<usize> = KIND + 1..KIND + 1 + 8;
const TIER: usize = HOLDER.end;
const END: Range<usize> = TIER + 1..TIER + 1 + 8;
const TAG: Range<usize> = END.end..END.end + 32;
const TOKEN_BYTES: usize = TAG.end;

const _: () = assert!(TOKEN_BYTES == 58);

const KIND_KEY: u8 = 1;
const KIND_ACCESS_TOKEN: u8 = 2;

/// The credential with which a token was requested. The socket that it opens lives no longer than
/// this credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WsHolder {
    /// An API key.
    Key(KeyId),
    /// An access token.
    AccessToken {
        /// The time from which the access token is refused.
        ends_at: Timestamp,
    },
}

/// The grant that a token carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WsGrant {
    /// The account whose socket the token opens.
    pub account_id: AccountId,
    /// The credential with which the token was requested.
    pub holder: WsHolder,
    /// The tier whose cap on open sockets applies.
    pub tier: Tier,
    /// The time from which the token is refused.
    pub expires_at: Timestamp,
}

/// The secret that signs and verifies tokens.
pub struct WsTokens {
    secret: hmac::Key,
}

impl WsTokens {
    /// Creates an issuer of tokens with this secret.
    pub fn from_secret(secret: [u8; 32]) -> Self {
        Self { secret: hmac::Key::new(hmac::HMAC_SHA256, &secret) }
    }

    /// Generates a secret from the operating system's randomness. Fails only if the system provides
    /// none.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Self::from_secret(secret))
    }

    /// Mints a token for this caller, valid for [`WS_TOKEN_SECONDS`].
    pub fn mint(
        &self,
        account_id: AccountId,
        holder: WsHolder,
        tier: Tier,
        now: Timestamp,
    ) -> String {
        let lifetime_ns = i64::from(WS_TOKEN_SECONDS) * 1_000_000_000;
        let expires_at = now.nanos().saturating_add(lifetime_ns);
        let mut bytes = [0; TOKEN_BYTES];
        bytes[ACCOUNT].copy_from_slice(&account_id.get().to_be_bytes());
        let (kind, number) = match holder {
            WsHolder::Key(key_id) => (KIND_KEY, key_id.get()),
            WsHolder::AccessToken { ends_at } => {
                (KIND_ACCESS_TOKEN, ends_at.nanos().cast_unsigned())
            }
        };
        bytes[KIND] = kind;
        bytes[HOLDER].copy_from_slice(&number.to_be_bytes());
        bytes[TIER] = tier_code(tier);
        bytes[END].copy_from_slice(&expires_at.to_be_bytes());
        let tag = hmac::sign(&self.secret, &bytes[..TAG.start]);
        bytes[TAG].copy_from_slice(tag.as_ref());
        super::hex(&bytes)
    }

    /// Returns the grant of a token at the time `now`. Accepts any text. No MAC is computed for
    /// text of the wrong length.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<WsGrant, WsTokenError> {
        let bytes = unhex(text.as_bytes()).ok_or(WsTokenError::Invalid)?;
        hmac::verify(&self.secret, &bytes[..TAG.start], &bytes[TAG])
            .map_err(|_| WsTokenError::Invalid)?;
        let grant = read(&bytes).expect("what carries our tag was written by us");
        let is_good = grant.expires_at.is_ahead(now, WS_TOKEN_SECONDS);
        if is_good { Ok(grant) } else { Err(WsTokenError::Expired) }
    }
}

impl fmt::Debug for WsTokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WsTokens").finish_non_exhaustive()
    }
}

/// The error for a token that opens no socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WsTokenError {
    /// Not issued by this process, or modified since.
    #[error("not a socket token of this server; ask for a new one")]
    Invalid,
    /// The token has expired.
    #[error("the socket token is older than {WS_TOKEN_SECONDS} seconds; ask for a new one")]
    Expired,
}

fn read(bytes: &[u8; TOKEN_BYTES]) -> Option<WsGrant> {
    let number = |range: Range<usize>| bytes[range].try_into().map(u64::from_be_bytes).ok();
    let time = |range| Some(Timestamp::from_nanos(number(range)?.cast_signed()));
    let holder = match bytes[KIND] {
        KIND_KEY => WsHolder::Key(KeyId::from_raw(number(HOLDER)?)?),
        KIND_ACCESS_TOKEN => WsHolder::AccessToken { ends_at: time(HOLDER)? },
        _ => return None,
    };
    Some(WsGrant {
        account_id: AccountId::from_raw(number(ACCOUNT)?)?,
        holder,
        tier: Tier::ALL.into_iter().find(|tier| tier_code(*tier) == bytes[TIER])?,
        expires_at: time(END)?,
    })
}

const fn tier_code(tier: Tier) -> u8 {
    match tier {
        Tier::Free => 1,
        Tier::Pro => 2,
        Tier::Enterprise => 3,
    }
}

fn unhex(text: &[u8]) -> Option<[u8; TOKEN_BYTES]> {
    if text.len() != WS_TOKEN_TEXT_BYTES {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; TOKEN_BYTES];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use paperbourse_core::ids::ID_MAX;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

    fn tokens() -> WsTokens {
        WsTokens::from_secret([7; 32])
    }

    fn sample() -> String {
        let [account, key] = [640, 77];
        let holder = WsHolder::Key(KeyId::from_raw(key).unwrap());
        tokens().mint(AccountId::from_raw(account).unwrap(), holder, Tier::Pro, NOW)
    }

    #[test]
    fn a_token_lasts_a_minute_and_is_reusable() {
        let token = sample();
        assert_eq!(token.len(), WS_TOKEN_TEXT_BYTES);
        let end = NOW.nanos() + 60_000_000_000;
        for (now, is_valid) in
            [(NOW.nanos(), true), (end - 1, true), (end - 1, true), (end, false), (i64::MAX, false)]
        {
            let found = tokens().verify(&token, Timestamp::from_nanos(now));
            let expected = WsGrant {
                account_id: AccountId::from_raw(640).unwrap(),
                holder: WsHolder::Key(KeyId::from_raw(77).unwrap()),
                tier: Tier::Pro,
                expires_at: Timestamp::from_nanos(end),
            };
            assert_eq!(found, if is_valid { Ok(expected) } else { Err(WsTokenError::Expired) });
        }
    }

    #[test]
    fn a_token_with_a_changed_byte_is_refused() {
        let token = sample();
        for index in 0..token.len() {
            for replacement in "0123456789abcdefABCDEFg \0".chars() {
                let mut changed = token.clone();
                changed.replace_range(index..=index, &replacement.to_string());
                let found = tokens().verify(&changed, NOW);
                assert_eq!(found.is_ok(), changed == token, "byte {index} to {replacement:?}");
            }
        }
    }

    #[test]
    fn a_token_of_another_length_is_refused() {
        let token = sample();
        for text in ["", "é", &token[2..], &token[..114], &format!("{token}00"), &"a".repeat(9999)]
        {
            assert_eq!(tokens().verify(text, NOW), Err(WsTokenError::Invalid), "{text}");
        }
    }

    #[test]
    fn another_process_refuses_the_token() {
        let token = sample();
        for other in [WsTokens::from_secret([8; 32]), WsTokens::generate().unwrap()] {
            assert_eq!(other.verify(&token, NOW), Err(WsTokenError::Invalid));
        }
    }

    proptest! {
        #[test]
        fn a_minted_token_grants_what_it_was_minted_for(
            account in 64..=ID_MAX,
            key in proptest::option::of(64..=ID_MAX),
            ends_at in any::<i64>(),
            tier in proptest::sample::select(&Tier::ALL[..]),
            now in 0..i64::MAX - 60_000_000_000,
        ) {
            let account_id = AccountId::from_raw(account).unwrap();
            let ends_at = Timestamp::from_nanos(ends_at);
            let holder = key
                .and_then(KeyId::from_raw)
                .map_or(WsHolder::AccessToken { ends_at }, WsHolder::Key);
            let now = Timestamp::from_nanos(now);
            let token = tokens().mint(account_id, holder, tier, now);
            let expires_at = Timestamp::from_nanos(now.nanos() + 60_000_000_000);
            let expected = WsGrant { account_id, holder, tier, expires_at };
            prop_assert_eq!(tokens().verify(&token, now), Ok(expected));
        }

        #[test]
        fn arbitrary_text_is_refused(text in "\\PC{0,200}") {
            prop_assert_eq!(tokens().verify(&text, NOW), Err(WsTokenError::Invalid));
        }
    }
}
