//! Hints for a user who starts the server on a terminal.
//!
//! They are printed to standard error, and only if it is a terminal, so they never mix with the log
//! on standard output.

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::config::ServeArgs;
use crate::config::identity::IdentityChoice;
use crate::telemetry::OneLine;

/// Default folder in which `paperbourse token` looks for the issuer's key.
const DATA_DEFAULT: &str = "./data";

/// Prints the hints if standard error is a terminal.
pub(super) fn greet(arguments: &ServeArgs, addresses: &[SocketAddr], first_token: Option<&str>) {
    let Some(&address) = addresses.first() else { return };
    let mut errors = io::stderr().lock();
    if errors.is_terminal() {
        let program = env::args_os().next().unwrap_or_else(|| "paperbourse".into());
        for line in lines(&program.to_string_lossy(), arguments, address, first_token) {
            // There is nowhere left to report an error.
            let _ = writeln!(errors, "{}", OneLine(line));
        }
    }
}

/// Returns the lines with the address of the web page, the address of the guide, and the command
/// that creates an API key.
fn lines(
    program: &str,
    arguments: &ServeArgs,
    address: SocketAddr,
    first_token: Option<&str>,
) -> [String; 3] {
    let url = format!("http://{}", reachable(address));
    let ask = |token: &str| {
        format!("curl -X POST {url}/v1/keys/bootstrap -H \"Authorization: Bearer {token}\"")
    };
    let key = match (&arguments.identity.identity, first_token) {
        (IdentityChoice::Embedded, Some(token)) => ask(token),
        (IdentityChoice::Embedded, None) => {
            let folder = arguments.key_folder().expect("a temporary key has a first token");
            let data = if folder == Path::new(DATA_DEFAULT) {
                String::new()
            } else {
                format!(" --data {}", quoted(&folder.to_string_lossy()))
            };
            ask(&format!("$({} token --subject NAME{data})", quoted(program)))
        }
        (IdentityChoice::Oidc(url), _) => {
            format!("{}, with an access token of {url}", ask("TOKEN"))
        }
        (IdentityChoice::Hs256(_), _) => {
            let issuer = arguments.identity.issuer.as_deref().unwrap_or_default();
            format!("{}, with an access token of {issuer}", ask("TOKEN"))
        }
    };
    [format!("page  {url}/"), format!("docs  {url}/docs"), format!("key   {key}")]
}

/// Returns an address that clients on this machine can use: loopback in place of an unspecified IP.
pub(super) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

/// Quotes the text as a single shell word.
fn quoted(text: &str) -> Cow<'_, str> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./:@%+=,".contains(char);
    if !text.is_empty() && text.chars().all(is_plain) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("'{}'", text.replace('\'', r"'\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::serve;

    #[track_caller]
    fn check(flags: &[&str], address: &str, token: Option<&str>, expected: [&str; 2]) {
        let arguments = serve(flags).unwrap();
        let [page, docs, key] = lines("bin/bourse", &arguments, address.parse().unwrap(), token);
        let [url, expected] = expected;
        assert_eq!((page, docs), (format!("page  {url}/"), format!("docs  {url}/docs")));
        let (command, after) = match key.split_once("\", ") {
            Some((command, after)) => (format!("{command}\""), after),
            None => (key, ""),
        };
        let prefix =
            format!("key   curl -X POST {url}/v1/keys/bootstrap -H \"Authorization: Bearer ");
        let token = command.strip_prefix(&prefix).expect(&command);
        assert_eq!(format!("{} {after}", token.strip_suffix('"').unwrap()).trim_end(), expected);
    }

    #[test]
    fn a_key_takes_one_command() {
        const LOCAL: &str = "127.0.0.1:8080";
        const URL: &str = "http://127.0.0.1:8080";
        let of = |folder| format!("$(bin/bourse token --subject NAME{folder})");
        check(&[], LOCAL, None, [URL, &of("")]);
        check(&["--data", "data/"], LOCAL, None, [URL, &of(" --data data/")]);
        check(&["--data", "my data's"], LOCAL, None, [URL, &of(r" --data 'my data'\''s'")]);
        check(&["--data", "memory"], LOCAL, Some("ey.x"), [URL, "ey.x"]);
        check(&["--data", "memory", "--issuer-data", "k"], LOCAL, None, [URL, &of(" --data k")]);
        check(
            &["--identity", "oidc:https://id.example.org", "--audience", "a"],
            LOCAL,
            None,
            [URL, "TOKEN with an access token of https://id.example.org"],
        );
        check(
            &["--identity", "hs256:/secret", "--issuer", "https://auth.example.org"],
            LOCAL,
            None,
            [URL, "TOKEN with an access token of https://auth.example.org"],
        );
    }

    #[test]
    fn an_address_that_stands_for_all_is_shown_as_one_that_answers() {
        for (address, url) in [
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:8080", "http://[::1]:8080"),
            ("192.0.2.1:8080", "http://192.0.2.1:8080"),
        ] {
            check(&[], address, None, [url, "$(bin/bourse token --subject NAME)"]);
        }
    }
}
