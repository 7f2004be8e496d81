//! A row of the operation table, with everything that is checked before a body is read.

use std::fmt;
use std::pin::Pin;

use hyper::Method;
use hyper::header::HeaderMap;
use schemars::JsonSchema;

use super::app::Server;
use super::call::{Answer, Call};
use super::error::{ApiError, ClobError, ClobRefusal};
use super::file::File;
use super::operations::socket::Stream;
use super::parameter::Parameter;
use super::query::Query;
use super::reply::Reply;
use paperbourse_core::engine::key::Permission;
use paperbourse_core::wire::{SchemaOf, schema_of};
use paperbourse_exchange::service::Makes;

/// Maximum body size of most operations, in bytes.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Maximum body size of a batch operation, in bytes.
pub const BATCH_BODY_BYTES_MAX: usize = 256 * 1024;

/// A row of the operation table.
pub struct Operation {
    /// The method. `GET` operations also answer `HEAD`.
    pub method: Verb,
    /// The path, without the query string.
    pub path: Pattern,
    /// Who may call the operation.
    pub access: Access,
    /// Maximum size of the body, in bytes.
    pub body_bytes_max: usize,
    /// Whether the body is a batch, part of which may be carried out even if the rest is not.
    pub is_batch: bool,
    /// Whether the venue's interface and this server's own both have this method and path.
    pub is_in_both: bool,
    /// Whether a call may create an account or a key, whose creation is rate limited.
    pub makes: Makes,
    /// The query parameters.
    pub query: &'static [Parameter],
    /// The headers that the operation reads, besides those that all operations read.
    pub headers: &'static [Parameter],
    /// The body that the operation reads, if any.
    pub(super) body: Option<Body>,
    /// The form of the answer on success.
    pub(super) answers: Answers,
    /// Error codes of this operation, besides those of every operation. See
    /// [`Operation::may_fail_with`].
    pub errors: &'static [&'static str],
    /// A description for the documentation.
    pub summary: &'static str,
    pub(super) run: Run,
}

/// The body of a request.
pub(super) struct Body {
    pub(super) schema: SchemaOf,
    pub(super) is_required: bool,
}

/// The form of an operation's answer on success.
#[derive(Clone, Copy)]
pub(super) enum Answers {
    /// JSON, with the status 200.
    Json(SchemaOf),
    /// JSON, with the status 201.
    Created(SchemaOf),
    /// JSON, with the status 200, or 503 if the answer is a failed check.
    Checked(SchemaOf),
    /// A number.
    Number,
    /// A JSON object that is described elsewhere.
    Any,
    /// A file of this media type.
    File(&'static str),
    /// A file of one of these media types.
    Files(&'static [&'static str]),
    /// A CSV file.
    Csv,
    /// Server-sent events.
    Events,
    /// An upgrade.
    Socket,
}

/// How an operation runs.
pub(super) enum Run {
    /// Runs without any checks, even while the server is starting.
    Health(fn(&Server, &HeaderMap, Query<'_>) -> Answer),
    /// Sends the file that belongs to the path's parameter, without any checks; `None` if there is
    /// no such file.
    File(fn(&Server, &str) -> Option<&'static File>),
    /// Upgrades the connection, and checks the credential itself.
    Socket(Stream),
    /// Runs as part of the request's own future, which saves the hottest operation an allocation.
    Trade,
    /// Runs synchronously, from memory.
    Now(fn(&Call<'_>) -> Answer),
    /// Runs in a boxed future. Each connection reserves space for the largest unboxed future and
    /// moves it with each request, so operations that wait for a shard are worth an allocation.
    Later(for<'a> fn(&'a Call<'a>) -> Pin<Box<dyn Future<Output = Answer> + Send + 'a>>),
    /// Reads memory for a client of the venue, synchronously. All errors of the operation, also
    /// those of the common checks, look like the venue's, and parameters of the query that it does
    /// not read are ignored.
    Clob(fn(&Call<'_>) -> Result<Reply, ClobError>),
    /// The same, in a boxed future like that of [`Run::Later`].
    ClobLater(ClobLater),
}

/// An operation of the venue's interface that waits.
pub(super) type ClobLater =
    for<'a> fn(
        &'a Call<'a>,
    ) -> Pin<Box<dyn Future<Output = Result<Reply, ClobRefusal>> + Send + 'a>>;

/// The methods that operations use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// `GET`, which includes `HEAD`.
    Get,
    /// `POST`
    Post,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

/// The methods that a path accepts. `Display` gives the value of the `Allow` header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allow(u8);

/// A path in which one segment may be a parameter: `/v1/orders/{order_id}`.
#[derive(Clone, Copy)]
pub struct Pattern {
    text: &'static str,
    /// The text before the parameter; the whole path if there is none.
    before: &'static str,
    /// The name of the parameter; empty if there is none.
    parameter: &'static str,
    after: &'static str,
}

/// Who may call an operation. `Display` gives the text in the guide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Every caller. A credential that is sent must still be valid.
    Public,
    /// Bearers of an access token; an API key sent with it is ignored.
    Token,
    /// Bearers of an access token, and holders of a key with this permission, or of any key if it
    /// is `None`.
    KeyOrToken(Option<Permission>),
    /// Holders of a key with this permission. A request with an access token gets a separate error.
    Key(Permission),
    /// Wallets that sign the headers (L1). The operation verifies the signature.
    Wallet,
    /// Wallets that sign the request with a key of theirs (L2) that has this permission, or with
    /// any key if it is `None`.
    WalletKey(Option<Permission>),
    /// Callers that may open a socket. [`Run::Socket`] checks this, because a client can read the
    /// reason for a refusal only after the upgrade.
    Socket,
}

impl Operation {
    pub(super) const fn get(path: &'static str, access: Access, run: Run) -> Self {
        Self::new(Verb::Get, path, access, run)
    }

    pub(super) const fn post(path: &'static str, access: Access, run: Run) -> Self {
        Self::new(Verb::Post, path, access, run)
    }

    pub(super) const fn patch(path: &'static str, access: Access, run: Run) -> Self {
        Self::new(Verb::Patch, path, access, run)
    }

    pub(super) const fn delete(path: &'static str, access: Access, run: Run) -> Self {
        Self::new(Verb::Delete, path, access, run)
    }

    pub(super) const fn new(method: Verb, path: &'static str, access: Access, run: Run) -> Self {
        Self {
            method,
            path: Pattern::new(path),
            access,
            body_bytes_max: BODY_BYTES_MAX,
            is_batch: false,
            is_in_both: false,
            makes: Makes { account: false, key: false },
            query: &[],
            headers: &[],
            body: None,
            answers: Answers::Any,
            errors: &[],
            summary: "",
            run,
        }
    }

    pub(super) const fn batch_body(self) -> Self {
        Self { body_bytes_max: BATCH_BODY_BYTES_MAX, is_batch: true, ..self }
    }

    /// Marks a row whose method and path the other table has, too. A request that names the API key
    /// of a wallet is for the venue's row, and any other for this server's own.
    pub(super) const fn in_both(self) -> Self {
        Self { is_in_both: true, ..self }
    }

    pub(super) const fn makes_account(self) -> Self {
        Self { makes: Makes { account: true, ..self.makes }, ..self }
    }

    pub(super) const fn makes_key(self) -> Self {
        Self { makes: Makes { key: true, ..self.makes }, ..self }
    }

    pub(super) const fn query(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    pub(super) const fn headers(self, headers: &'static [Parameter]) -> Self {
        Self { headers, ..self }
    }

    /// Requires a body.
    pub(super) const fn body<T: JsonSchema>(self) -> Self {
        Self { body: Some(Body { schema: schema_of::<T>, is_required: true }), ..self }
    }

    /// Reads a body if there is one.
    pub(super) const fn optional_body<T: JsonSchema>(self) -> Self {
        Self { body: Some(Body { schema: schema_of::<T>, is_required: false }), ..self }
    }

    pub(super) const fn answers<T: JsonSchema>(self) -> Self {
        self.answers_with(Answers::Json(schema_of::<T>))
    }

    pub(super) const fn creates<T: JsonSchema>(self) -> Self {
        self.answers_with(Answers::Created(schema_of::<T>))
    }

    pub(super) const fn checks<T: JsonSchema>(self) -> Self {
        self.answers_with(Answers::Checked(schema_of::<T>))
    }

    pub(super) const fn answers_with(self, answers: Answers) -> Self {
        Self { answers, ..self }
    }

    pub(super) const fn errors(self, errors: &'static [&'static str]) -> Self {
        Self { errors, ..self }
    }

    pub(super) const fn summary(self, summary: &'static str) -> Self {
        Self { summary, ..self }
    }

    /// Whether a client can receive this error code from the operation.
    pub fn can_answer(&self, code: &str) -> bool {
        let is_of_path = matches!(code, "NOT_FOUND") && !self.path.parameter.is_empty();
        match self.run {
            Run::Health(_) | Run::File(_) => {
                self.errors.contains(&code) || matches!(code, "INVALID_HOST" | "INTERNAL_ERROR")
            }
            // No client receives `BODY_INCOMPLETE`, because its connection is gone by then.
            _ => {
                is_of_path
                    || code == "INVALID_HOST"
                    || (self.may_fail_with(code) && code != "BODY_INCOMPLETE")
            }
        }
    }

    /// Whether every node of a cluster answers this operation itself. A draining node answers
    /// readiness itself, since it is not ready, whichever node serves. Any other node is ready if
    /// the serving node is.
    #[cfg(feature = "cluster")]
    pub(super) fn is_answered_by_any_node(&self, is_draining: bool) -> bool {
        let is_readiness = self.path.as_str() == "/v1/health/ready";
        matches!(self.run, Run::Health(_) | Run::File(_)) && (!is_readiness || is_draining)
    }

    /// Whether the operation belongs to the venue's interface.
    pub(super) const fn is_clob(&self) -> bool {
        match self.run {
            Run::Clob(_) | Run::ClobLater(_) => true,
            Run::Socket(stream) => stream.is_clob(),
            _ => false,
        }
    }

    /// Whether the operation changes nothing.
    pub(super) fn is_read(&self) -> bool {
        let is_clob_read = match self.run {
            Run::Clob(_) => true,
            Run::ClobLater(_) => self.access == Access::Public,
            _ => false,
        };
        self.method == Verb::Get || is_clob_read
    }

    /// Returns the answer for an error, as the operation's clients expect it.
    pub(super) fn refuse(&self, error: ApiError) -> Reply {
        if self.is_clob() {
            ClobError::of(error, self.access).into_reply()
        } else {
            error.into_reply()
        }
    }

    /// Returns the name in metrics: `GET /v1/orders/{order_id}`. No other operation of a server has
    /// it.
    pub fn name(&self) -> String {
        let end = if self.is_in_both && self.is_clob() { " (CLOB)" } else { "" };
        format!("{} {}{end}", self.method.as_str(), self.path.as_str())
    }

    /// Whether an answer can have this error code, from the operation's row or from the common
    /// checks.
    pub fn may_fail_with(&self, code: &str) -> bool {
        const ALL: [&str; 14] = [
            "BODY_INCOMPLETE",
            "BODY_TOO_LARGE",
            "IDENTITY_UNAVAILABLE",
            "INTERNAL_ERROR",
            "INVALID_KEY",
            "INVALID_TOKEN",
            "KEY_DEACTIVATED",
            "KEY_EXPIRED",
            "LOG_HALTED",
            "NOT_READY",
            "RATE_LIMIT_EXCEEDED",
            "SERVER_BUSY",
            "TOKEN_EXPIRED",
            "VALIDATION_FAILED",
        ];
        const WITH_CREDENTIAL: [&str; 2] = ["INSUFFICIENT_PERMISSION", "MISSING_AUTH"];
        self.errors.contains(&code)
            // An operation that can fail with `JOURNAL_FULL` is a write, which suspended accounts
            // may not make.
            || (code == "ACCOUNT_SUSPENDED" && self.errors.contains(&"JOURNAL_FULL"))
            // A write that was forwarded to another node may be lost without an answer.
            || (code == "OUTCOME_UNKNOWN" && !self.is_read())
            || ALL.contains(&code)
            || (self.access != Access::Public && WITH_CREDENTIAL.contains(&code))
    }
}

impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        self.method == other.method && self.path == other.path && self.is_clob() == other.is_clob()
    }
}

impl Eq for Operation {}

impl fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.method.as_str(), self.path.text)
    }
}

impl Verb {
    /// Returns the verb for a method, or `None` if no operation uses it.
    pub const fn of(method: &Method) -> Option<Self> {
        Some(match *method {
            Method::GET | Method::HEAD => Self::Get,
            Method::POST => Self::Post,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ => return None,
        })
    }

    /// Returns the name used in a request line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

impl FromIterator<Verb> for Allow {
    fn from_iter<I: IntoIterator<Item = Verb>>(verbs: I) -> Self {
        Self(verbs.into_iter().fold(0, |set, verb| set | 1 << verb as u8))
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verbs = [Verb::Get, Verb::Post, Verb::Patch, Verb::Delete];
        let taken = verbs.into_iter().filter(|verb| self.0 & 1 << *verb as u8 != 0);
        for (index, verb) in taken.enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let head = if verb == Verb::Get { ", HEAD" } else { "" };
            write!(formatter, "{comma}{}{head}", verb.as_str())?;
        }
        Ok(())
    }
}

impl Pattern {
    const fn new(text: &'static str) -> Self {
        let bytes = text.as_bytes();
        let mut open = 0;
        while open < bytes.len() && bytes[open] != b'{' {
            open += 1;
        }
        let (before, rest) = text.split_at(open);
        if rest.is_empty() {
            return Self { text, before, parameter: "", after: "" };
        }
        let mut close = 0;
        while rest.as_bytes()[close] != b'}' {
            close += 1;
        }
        let (parameter, after) = rest.split_at(close);
        let (_brace, parameter) = parameter.split_at(1);
        let (_brace, after) = after.split_at(1);
        Self { text, before, parameter, after }
    }

    /// Returns the pattern as written in the table.
    pub const fn as_str(&self) -> &'static str {
        self.text
    }

    /// Returns the name of the parameter; empty if there is none.
    pub const fn parameter(&self) -> &'static str {
        self.parameter
    }

    /// Returns the segment of `path` in place of the parameter, or empty text if the pattern has no
    /// parameter; `None` if the path does not match.
    pub(super) fn segment<'p>(&self, path: &'p str) -> Option<&'p str> {
        if self.parameter.is_empty() {
            return (path == self.text).then_some("");
        }
        let segment = path.strip_prefix(self.before)?.strip_suffix(self.after)?;
        (!segment.is_empty() && !segment.contains('/')).then_some(segment)
    }

    /// Returns what [`Self::segment`] returns, for a path that lacks the folder with which the
    /// pattern begins.
    pub(super) fn segment_below<'p>(&self, folder: &str, path: &'p str) -> Option<&'p str> {
        let below = Self {
            text: self.text.strip_prefix(folder)?,
            before: self.before.strip_prefix(folder)?,
            ..*self
        };
        below.segment(path)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => formatter.write_str("none"),
            Self::Token => formatter.write_str("token"),
            Self::KeyOrToken(None) => formatter.write_str("key or token"),
            Self::KeyOrToken(Some(needed)) => {
                write!(formatter, "key (`{}`) or token", needed.as_str())
            }
            Self::Key(needed) => write!(formatter, "key (`{}`)", needed.as_str()),
            Self::Wallet => formatter.write_str("L1"),
            Self::WalletKey(_) => formatter.write_str("L2"),
            Self::Socket => formatter.write_str("key (`read`) or `?token=`"),
        }
    }
}
