//! The identity options: the source of access tokens, and the claims that they must contain.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;

use crate::auth::identity::oidc::discovery::{IssuerUrl, IssuerUrlError};
use crate::auth::identity::shared_secret::AUDIENCE_DEFAULT;
use crate::auth::identity::tier_claim::TierClaim;
use crate::auth::wallet::WALLET_ISSUER;

/// The identity options of `paperbourse serve`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = super::IDENTITY)]
pub struct IdentityArgs {
    /// Who signs access tokens: `embedded` (this server), `oidc:URL` (an OIDC provider, by its
    /// issuer URL) or `hs256:FILE` (a provider that shares the secret in this file)
    #[arg(long, env = "PAPERBOURSE_IDENTITY", default_value = "embedded", value_name = "SOURCE")]
    pub identity: IdentityChoice,

    /// Expected `iss` of access tokens; required with `hs256`, taken from the URL with `oidc`
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_ISSUER", value_name = "ISSUER")]
    pub issuer: Option<String>,

    /// Expected `aud` of access tokens; required with `oidc` [default: `authenticated` with
    /// `hs256`]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_AUDIENCE", value_name = "AUDIENCE")]
    pub audience: Option<String>,

    /// Claim that names the highest tier a token may use, such as `app_metadata.tier`; tokens
    /// without it get --default-tier. The embedded issuer uses `tier`
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_TIER_CLAIM", value_name = "CLAIM")]
    pub tier_claim: Option<TierClaim>,

    /// PEM file with the only certificate authorities to trust when fetching the keys of an `oidc`
    /// provider [default: the system's]
    #[arg(hide_short_help = true)]
    #[arg(long, env = "PAPERBOURSE_IDENTITY_CA", value_name = "FILE")]
    pub identity_ca: Option<PathBuf>,
}

/// The identity source, as chosen on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentityChoice {
    /// The issuer built into this server.
    Embedded,
    /// The OIDC provider with this issuer URL, which publishes its keys.
    Oidc(IssuerUrl),
    /// A provider that signs with the secret in this file.
    Hs256(PathBuf),
}

/// An error for text that is not an identity source.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityChoiceError {
    /// The text has an unknown prefix, or names no file.
    #[error("not an identity source: use `embedded`, `oidc:URL` or `hs256:FILE`")]
    Unknown,
    /// Keys cannot be fetched from the URL.
    #[error(transparent)]
    Url(#[from] IssuerUrlError),
}

impl FromStr for IdentityChoice {
    type Err = IdentityChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "embedded" => Ok(Self::Embedded),
            Some(("oidc", url)) => Ok(Self::Oidc(url.parse()?)),
            Some(("hs256", path)) if !path.is_empty() => Ok(Self::Hs256(path.into())),
            _ => Err(IdentityChoiceError::Unknown),
        }
    }
}

/// Formats the source as on the command line.
impl fmt::Display for IdentityChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => formatter.write_str("embedded"),
            Self::Oidc(url) => write!(formatter, "oidc:{url}"),
            Self::Hs256(path) => write!(formatter, "hs256:{}", path.display()),
        }
    }
}

/// An identity source with all its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentityConfig {
    /// The issuer built into this server.
    Embedded,
    /// An OIDC provider, which publishes its keys.
    Oidc {
        /// The provider's issuer URL.
        url: IssuerUrl,
        /// The expected `aud` claim.
        audience: String,
        /// The claim that holds the tier; `None` if no claim does.
        tier_claim: Option<TierClaim>,
        /// File of the certificate authorities to trust; `None` for the system's.
        authorities: Option<PathBuf>,
    },
    /// A provider that signs with a shared secret.
    Hs256 {
        /// The file with the secret.
        path: PathBuf,
        /// The expected `iss` claim.
        issuer: String,
        /// The expected `aud` claim.
        audience: String,
        /// The claim that holds the tier; `None` if no claim does.
        tier_claim: Option<TierClaim>,
    },
}

/// An error for identity options that contradict each other.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityConfigError {
    /// The source requires this flag.
    #[error("--identity {source_name} needs {flag}")]
    Missing {
        /// The source, as given to `--identity`.
        source_name: String,
        /// The missing flag with a placeholder for its value, and its purpose.
        flag: &'static str,
    },
    /// The source ignores this flag.
    #[error("--identity {source_name} takes no {flag}: it would have no effect")]
    Useless {
        /// The source, as given to `--identity`.
        source_name: String,
        /// The flag that has no effect.
        flag: &'static str,
    },
    /// The name is reserved for the accounts of wallets.
    #[error(
        "--issuer {WALLET_ISSUER}: tokens of an issuer with this name would open the accounts of \
         wallets"
    )]
    IssuerOfWallets,
}

impl IdentityArgs {
    /// Returns the configured source, or an error if options contradict each other. An empty value
    /// counts as absent, since an unset variable expands to an empty string.
    pub fn config(&self) -> Result<IdentityConfig, IdentityConfigError> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let (issuer, audience) = (given(&self.issuer), given(&self.audience));
        let missing =
            |flag| IdentityConfigError::Missing { source_name: self.identity.to_string(), flag };
        if !matches!(self.identity, IdentityChoice::Oidc(_)) {
            self.refuse("--identity-ca", self.identity_ca.is_some())?;
        }
        match &self.identity {
            IdentityChoice::Embedded => {
                self.refuse("--issuer", issuer.is_some())?;
                self.refuse("--audience", audience.is_some())?;
                self.refuse("--tier-claim", self.tier_claim.is_some())?;
                Ok(IdentityConfig::Embedded)
            }
            IdentityChoice::Oidc(url) => {
                self.refuse("--issuer", issuer.is_some())?;
                Ok(IdentityConfig::Oidc {
                    url: url.clone(),
                    audience: audience.ok_or_else(|| {
                        missing(
                            "--audience AUDIENCE, the `aud` of tokens for this server: without \
                             it, tokens for any other service of the provider would be accepted",
                        )
                    })?,
                    tier_claim: self.tier_claim.clone(),
                    authorities: self.identity_ca.clone(),
                })
            }
            IdentityChoice::Hs256(_) if issuer.as_deref() == Some(WALLET_ISSUER) => {
                Err(IdentityConfigError::IssuerOfWallets)
            }
            IdentityChoice::Hs256(path) => Ok(IdentityConfig::Hs256 {
                path: path.clone(),
                issuer: issuer.ok_or_else(|| {
                    missing(
                        "--issuer ISSUER, the `iss` of the tokens, such as \
                             https://PROJECT.supabase.co/auth/v1",
                    )
                })?,
                audience: audience.unwrap_or_else(|| AUDIENCE_DEFAULT.to_owned()),
                tier_claim: self.tier_claim.clone(),
            }),
        }
    }

    fn refuse(&self, flag: &'static str, is_given: bool) -> Result<(), IdentityConfigError> {
        let source_name = self.identity.to_string();
        if is_given { Err(IdentityConfigError::Useless { source_name, flag }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        identity: IdentityArgs,
    }

    /// Returns the source that these flags configure, or the error that the operator sees.
    fn config(line: &str) -> Result<IdentityConfig, String> {
        let words = std::iter::once("serve").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.identity.config().map_err(|error| error.to_string())
    }

    #[test]
    fn each_source_gets_its_settings() {
        assert_eq!(config(""), Ok(IdentityConfig::Embedded));
        assert_eq!(config("--identity embedded --audience="), Ok(IdentityConfig::Embedded));
        let line = "--identity oidc:https://i.org/ --audience a --identity-ca /ca --tier-claim t";
        let provider = IdentityConfig::Oidc {
            url: "https://i.org/".parse().unwrap(),
            audience: "a".into(),
            tier_claim: Some("t".parse().unwrap()),
            authorities: Some("/ca".into()),
        };
        assert_eq!(config(line), Ok(provider));
        let shared = |audience: &str, claim: Option<&str>| IdentityConfig::Hs256 {
            path: "/run/secret".into(),
            issuer: "i".into(),
            audience: audience.into(),
            tier_claim: claim.map(|claim| claim.parse().unwrap()),
        };
        let line = "--identity hs256:/run/secret --issuer i";
        assert_eq!(config(line), Ok(shared("authenticated", None)));
        let line = format!("{line} --audience a --tier-claim app_metadata.tier");
        assert_eq!(config(&line), Ok(shared("a", Some("app_metadata.tier"))));
    }

    #[test]
    fn options_that_do_not_fit_together_are_refused() {
        for (line, expected) in [
            ("--identity x", "use `embedded`"),
            ("--identity hs256:", "use `embedded`"),
            ("--identity hs256:f", "--identity hs256:f needs --issuer ISSUER"),
            ("--identity hs256:f --issuer=", "--identity hs256:f needs --issuer ISSUER"),
            ("--identity hs256:f --issuer wallet", "would open the accounts of wallets"),
            ("--identity hs256:f --issuer i --identity-ca c", "takes no --identity-ca"),
            ("--identity oidc:https://i.org", "needs --audience AUDIENCE"),
            ("--identity oidc:https://i.org --audience a --issuer i", "takes no --issuer"),
            ("--identity oidc:http://i.org", "keys must be fetched over https"),
            ("--identity oidc:i.org", "not the address of an issuer"),
            ("--identity oidc:", "not the address of an issuer"),
            ("--identity-ca c", "--identity embedded takes no --identity-ca"),
            ("--audience a", "--identity embedded takes no --audience"),
            ("--issuer i", "--identity embedded takes no --issuer"),
            ("--tier-claim t", "--identity embedded takes no --tier-claim"),
            ("--identity hs256:f --tier-claim user_metadata.tier", "users can edit"),
        ] {
            let error = config(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
