//! Calls every method of Polymarket's Rust client that asks the order book's server. Its types are
//! strict: an answer that lacks a field fails.
//!
//! `METHODS HOST` runs the first half, and prints what the second needs to know; `METHODS HOST
//! KNOWN` runs the second, on the server that was killed in between, and prints the number of
//! methods that were called. The file `METHODS` has the names of all methods of the client.
//!
//! `books HOST` follows books that move, and prints how often a book that was kept from frames was
//! compared.

use std::collections::BTreeSet;
use std::str::FromStr as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polymarket_client_sdk_v2::auth::state::Authenticated;
use polymarket_client_sdk_v2::auth::{Credentials, ExposeSecret as _, LocalSigner, Normal, Signer};
use polymarket_client_sdk_v2::clob::types::request::{
    BalanceAllowanceRequest, DeleteNotificationsRequest, LastTradePriceRequest, MidpointRequest,
    OrderBookSummaryRequest, OrdersRequest, PriceHistoryRequest, PriceRequest, SpreadRequest,
    TradesRequest, UserRewardsEarningRequest,
};
use polymarket_client_sdk_v2::clob::types::response::{MarketResponse, Page};
use polymarket_client_sdk_v2::clob::types::{
    Amount, AssetType, Interval, OrderType, Side, TimeRange,
};
use polymarket_client_sdk_v2::clob::{Client, Config};
use polymarket_client_sdk_v2::error::{Error, Status};
use polymarket_client_sdk_v2::types::{B256, Decimal, NaiveDate, U256};
use polymarket_client_sdk_v2::{POLYGON, contract_config};
use serde_json::{Value, json};

/// Methods that are not called, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    (
        "is about requests for quotes, of which this server has none",
        "accept_quote approve_order cancel_quote cancel_request create_quote create_request \
         quotes requests",
    ),
    ("asks another server of Polymarket's than the order book's", "check_geoblock"),
    (
        "asks no server",
        "invalidate_internal_caches set_fee_rate set_fee_rate_bps set_neg_risk set_tick_size state",
    ),
    ("calls the method that it is given, page by page", "stream_data"),
    (
        "belongs to the builder of an authenticated client",
        "funder nonce salt_generator signature_type",
    ),
];

/// The id of a market order that clients sign in another way than they send it.
const APOSTROPHE: &str = "it's";

const KEY: &str = "0x8888888888888888888888888888888888888888888888888888888888888888";

/// The cash of a new account, in millionths of a dollar.
const CASH: u64 = 1_000_000_000;

const UNLIMITED: &str =
    "115792089237316195423570985008687907853269984665640564039457584007913129639935";

/// Longer than a run. Clients send heartbeats by themselves, and whoever has sent one and then none
/// loses his orders.
const QUIET: Duration = Duration::from_secs(3_600);

type Called = BTreeSet<String>;
type Wallet = Client<Authenticated<Normal>>;

/// Calls a method, and notes that it was called.
macro_rules! call {
    ($called:ident, $client:ident.$method:ident($($argument:expr),*)) => {
        ($called.insert(stringify!($method).to_owned()), $client.$method($($argument),*)).1
    };
}

/// Calls a method that must not fail.
macro_rules! ok {
    ($called:ident, $client:ident.$method:ident($($argument:expr),*)) => {
        call!($called, $client.$method($($argument),*))
            .await
            .unwrap_or_else(|error| panic!("{}: {error}", stringify!($method)))
    };
}

/// Calls a method that lists rows in pages, and returns those of all pages.
macro_rules! listed {
    ($called:ident, $client:ident.$method:ident($($argument:expr),*)) => {{
        let (mut rows, mut cursor) = (Vec::new(), None);
        loop {
            let page: Page<_> = ok!($called, $client.$method($($argument,)* cursor.clone()));
            assert_eq!(page.count, page.data.len() as u64);
            rows.extend(page.data);
            if page.next_cursor == "LTE=" {
                break rows;
            }
            cursor = Some(page.next_cursor);
        }
    }};
}

mod data;
mod gamma;
// Below the macros that it uses.
mod orders;
mod streams;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (methods, host) = (&arguments[0], &arguments[1]);
    streams::collect_log();
    if methods == "books" {
        return println!("{}", streams::keep_books(host).await);
    }
    let mut called = Called::new();
    if let Some(known) = arguments.get(2) {
        let known: Value = serde_json::from_str(known).unwrap();
        called.extend(known["called"].as_array().unwrap().iter().map(text));
        orders::second(host, &known["orders"], &mut called).await;
        second(host, &known["credentials"], &mut called).await;
        check_called(&std::fs::read_to_string(methods).unwrap(), &called);
        println!("{}", called.len());
    } else {
        gamma::read(host).await;
        let credentials = first(host, &mut called).await;
        let orders = orders::first(host, &mut called).await;
        let parsed: Credentials = serde_json::from_value(credentials.clone()).unwrap();
        let wallet = authenticate(host, parsed.clone(), &mut called).await;
        data::read(host, &wallet).await;
        streams::follow_user(host, &wallet, parsed).await;
        let known = json!({"credentials": credentials, "orders": orders, "called": called});
        println!("{known}");
    }
}

/// Fails if a method was neither called nor left out for a reason.
fn check_called(methods: &str, called: &Called) {
    let methods: BTreeSet<&str> = methods.split_whitespace().collect();
    let left_out: Vec<&str> = LEFT_OUT.iter().flat_map(|(_, names)| names.split(' ')).collect();
    let missing: Vec<&str> = methods
        .iter()
        .copied()
        .filter(|name| !called.contains(*name) && !left_out.contains(name))
        .collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
    for name in left_out {
        assert!(methods.contains(name), "not there: {name}");
        assert!(!called.contains(name), "called: {name}");
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn client(host: &str) -> Client {
    Client::new(host, Config::builder().heartbeat_interval(QUIET).build()).unwrap()
}

fn signer() -> impl Signer {
    LocalSigner::from_str(KEY).unwrap().with_chain_id(Some(POLYGON))
}

async fn authenticate(host: &str, credentials: Credentials, called: &mut Called) -> Wallet {
    let (client, signer) = (client(host), signer());
    let builder = call!(called, client.authentication_builder(&signer));
    let builder = call!(called, builder.credentials(credentials));
    ok!(called, builder.authenticate())
}

fn exposed(credentials: &Credentials) -> Value {
    let (secret, passphrase) = (credentials.secret(), credentials.passphrase());
    json!({
        "apiKey": credentials.key().to_string(),
        "secret": secret.expose_secret(),
        "passphrase": passphrase.expose_secret(),
    })
}

#[track_caller]
fn check_refused<T>(result: Result<T, Error>, status: u16, text: &str) {
    let error = result.err().expect("not refused");
    let refusal: &Status = error.downcast_ref().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(refusal.status_code, status, "{refusal}");
    assert_eq!(refusal.message, json!({"error": text}).to_string());
}

/// Reads what needs no credential. Returns a market with fees.
async fn read(host: &str, called: &mut Called) -> MarketResponse {
    let client = client(host);
    assert_eq!(client.host().as_str().trim_end_matches('/'), host);
    called.extend(["host", "new"].map(str::to_owned));
    assert_eq!(ok!(called, client.ok()), "OK");
    assert_eq!(ok!(called, client.version()), 2);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(ok!(called, client.server_time()).abs_diff(i64::try_from(now).unwrap()) < 60);
    let market = check_markets(&client, called).await;
    for token in &market.tokens {
        check_book(&client, &market, token.token_id, called).await;
    }
    market
}

/// The lists of markets agree with each other, and with what is asked by token.
async fn check_markets(client: &Client, called: &mut Called) -> MarketResponse {
    let markets = listed!(called, client.markets());
    let simplified = listed!(called, client.simplified_markets());
    assert!(markets.len() > 10);
    assert!(markets.iter().zip(&simplified).all(|(market, short)| {
        (market.condition_id, &market.tokens) == (short.condition_id, &short.tokens)
    }));
    let open = markets.iter().filter(|market| market.accepting_orders).count();
    assert_eq!(listed!(called, client.sampling_markets()).len(), open);
    assert_eq!(listed!(called, client.sampling_simplified_markets()).len(), open);
    for market in &markets {
        let condition = market.condition_id.unwrap().to_string();
        assert_eq!(ok!(called, client.market(&condition)), *market);
        let info = ok!(called, client.clob_market_info(&condition));
        assert_eq!(Some(info.condition_id), market.condition_id);
        assert_eq!(info.min_tick_size.as_decimal(), market.minimum_tick_size);
        assert_eq!(info.min_order_size, market.minimum_order_size);
        assert_eq!(info.taker_base_fee, Some(market.taker_base_fee));
    }
    markets.into_iter().find(|market| market.taker_base_fee > Decimal::ZERO).unwrap()
}

/// What is asked about a token is in its book and its market.
async fn check_book(host: &Client, market: &MarketResponse, token: U256, called: &mut Called) {
    // Remembers no market.
    let client = Client::new(host.host().as_str(), Config::builder().build()).unwrap();
    let found = ok!(called, client.market_by_token(token));
    assert_eq!(Some(found.condition_id), market.condition_id);
    let tick = ok!(called, client.tick_size(token)).minimum_tick_size;
    assert_eq!(tick.as_decimal(), market.minimum_tick_size);
    assert_eq!(ok!(called, client.neg_risk(token)).neg_risk, market.neg_risk);
    let fee = ok!(called, client.fee_rate_bps(token)).base_fee;
    assert_eq!(Decimal::from(fee), market.taker_base_fee);
    assert!((1..=2).contains(&ok!(called, client.fee_exponent(token))));

    let request = OrderBookSummaryRequest::builder().token_id(token).build();
    let book = ok!(called, client.order_book(&request));
    assert_eq!(ok!(called, client.order_books(&[request])), std::slice::from_ref(&book));
    // The client's own hash is another function than the venue's.
    assert!(call!(called, client.order_book_hash(&book)).is_ok());
    assert_eq!((Some(book.market), book.asset_id), (market.condition_id, token));
    let (bid, ask) = (book.bids.last().unwrap().price, book.asks.last().unwrap().price);
    let price = |side| PriceRequest::builder().token_id(token).side(side).build();
    assert_eq!(ok!(called, client.price(&price(Side::Buy))).price, bid);
    assert_eq!(ok!(called, client.price(&price(Side::Sell))).price, ask);
    let prices = ok!(called, client.prices(&[price(Side::Buy), price(Side::Sell)]));
    assert_eq!(prices.prices.unwrap()[&token], [(Side::Buy, bid), (Side::Sell, ask)].into());
    let mid = MidpointRequest::builder().token_id(token).build();
    assert_eq!(ok!(called, client.midpoint(&mid)).mid, (bid + ask) / Decimal::TWO);
    assert_eq!(ok!(called, client.midpoints(&[mid])).midpoints[&token], (bid + ask) / Decimal::TWO);
    let spread = SpreadRequest::builder().token_id(token).build();
    assert_eq!(ok!(called, client.spread(&spread)).spread, ask - bid);
    // The client looks for a key `spreads`, where the venue has the tokens.
    assert_eq!(ok!(called, client.spreads(&[spread])).spreads, None);
    // No trade was reported with its side yet.
    let last = LastTradePriceRequest::builder().token_id(token).build();
    let trade = ok!(called, client.last_trade_price(&last));
    assert_eq!((Some(trade.price), trade.side), (book.last_trade_price, Side::Unknown));
    assert_eq!(ok!(called, client.last_trades_prices(&[last])), []);
    // The best level is large enough.
    let amount = Amount::usdc(Decimal::from(5)).unwrap();
    let expected =
        ok!(called, client.calculate_market_price(token, Side::Buy, amount, OrderType::FOK));
    assert_eq!(expected, ask);
    let range = TimeRange::Interval { interval: Interval::Max };
    let request = PriceHistoryRequest::builder().market(token).time_range(range).build();
    let points = ok!(called, client.price_history(&request)).history;
    assert_eq!(points.last().unwrap().p, (bid + ask) / Decimal::TWO);
    let condition = market.condition_id.unwrap().to_string();
    assert_eq!(ok!(called, client.market_trades_events(&condition)), json!([]));
}

/// What a new wallet has.
async fn check_account(client: &Wallet, token: U256, called: &mut Called) {
    assert!(!ok!(called, client.closed_only_mode()).closed_only);
    for (asset, balance) in [(AssetType::Collateral, CASH), (AssetType::Conditional, 0)] {
        let request = BalanceAllowanceRequest::builder().asset_type(asset).token_id(token).build();
        let answer = ok!(called, client.balance_allowance(request.clone()));
        assert_eq!(answer.balance, Decimal::from(balance));
        for neg_risk in [false, true] {
            let contracts = contract_config(POLYGON, neg_risk).unwrap();
            assert_eq!(answer.allowances[&contracts.exchange_v2.unwrap()], UNLIMITED);
        }
        ok!(called, client.update_balance_allowance(request));
    }
    let orders = OrdersRequest::builder().asset_id(token).build();
    assert!(listed!(called, client.orders(&orders)).is_empty());
    assert!(listed!(called, client.pre_migration_orders()).is_empty());
    let trades = TradesRequest::builder().asset_id(token).after(1).build();
    assert!(listed!(called, client.trades(&trades)).is_empty());
    let builder = B256::repeat_byte(0x11);
    assert!(listed!(called, client.builder_trades(builder, &trades)).is_empty());
    let fees = ok!(called, client.builder_fee_rate(builder));
    assert_eq!((fees.builder_maker_fee_rate_bps, fees.builder_taker_fee_rate_bps), (0, 0));
    assert_eq!(ok!(called, client.notifications()), []);
    let ids = vec!["1".to_owned(), "2".to_owned()];
    let request = DeleteNotificationsRequest::builder().notification_ids(ids).build();
    ok!(called, client.delete_notifications(&request));
    check_scores(client, called).await;
}

async fn check_scores(client: &Wallet, called: &mut Called) {
    assert!(!ok!(called, client.is_order_scoring("0x1")).scoring);
    let scores = ok!(called, client.are_orders_scoring(&["0x1", APOSTROPHE]));
    assert_eq!(scores, [("0x1".to_owned(), false), (APOSTROPHE.to_owned(), false)].into());
}

async fn check_rewards(client: &Wallet, condition: &str, called: &mut Called) {
    let date = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
    assert!(listed!(called, client.earnings_for_user_for_day(date)).is_empty());
    assert_eq!(ok!(called, client.total_earnings_for_user_for_day(date)), []);
    let request = UserRewardsEarningRequest::builder().date(date).build();
    assert!(listed!(called, client.user_earnings_and_markets_config(&request)).is_empty());
    assert!(ok!(called, client.reward_percentages()).is_empty());
    assert!(listed!(called, client.current_rewards()).is_empty());
    assert!(listed!(called, client.raw_rewards_for_market(condition)).is_empty());
}

/// Keys of builders and keys that only read: there are none.
async fn check_other_keys(client: &Wallet, called: &mut Called) {
    let text = "not found: this server has no keys of this kind";
    assert_eq!(ok!(called, client.builder_api_keys()), []);
    assert!(ok!(called, client.readonly_api_keys()).is_empty());
    check_refused(call!(called, client.create_builder_api_key()).await, 404, text);
    check_refused(call!(called, client.create_readonly_api_key()).await, 404, text);
    check_refused(call!(called, client.delete_readonly_api_key("key")).await, 404, text);
    // The client does not look at the answer.
    ok!(called, client.revoke_builder_api_key());
}

async fn first(host: &str, called: &mut Called) -> Value {
    let market = read(host, called).await;
    let (token, condition) = (market.tokens[0].token_id, market.condition_id.unwrap().to_string());
    let (client, signer) = (client(host), signer());
    let derived = call!(called, client.derive_api_key(&signer, None)).await;
    check_refused(derived, 400, "Could not derive api key!");
    let credentials = ok!(called, client.create_api_key(&signer, None));
    let again = ok!(called, client.create_or_derive_api_key(&signer, None));
    assert_eq!(exposed(&again), exposed(&credentials));
    let wallet = authenticate(host, credentials.clone(), called).await;
    assert_eq!(call!(called, wallet.address()), signer.address());
    check_account(&wallet, token, called).await;
    check_rewards(&wallet, &condition, called).await;
    check_other_keys(&wallet, called).await;
    exposed(&credentials)
}

async fn second(host: &str, known: &Value, called: &mut Called) {
    let credentials: Credentials = serde_json::from_value(known.clone()).unwrap();
    let (client, signer) = (client(host), signer());
    let derived = ok!(called, client.derive_api_key(&signer, None));
    assert_eq!(exposed(&derived), *known);
    let wallet = authenticate(host, credentials, called).await;
    let keys = format!("{:?}", ok!(called, wallet.api_keys()));
    assert!(keys.contains(&text(&known["apiKey"])), "{keys}");
    check_scores(&wallet, called).await;
    assert_eq!(ok!(called, wallet.delete_api_key()), json!("OK"));
    let refused = call!(called, wallet.api_keys()).await;
    check_refused(refused, 401, "Unauthorized/Invalid api key");
    let client = ok!(called, wallet.deauthenticate());
    assert_eq!(ok!(called, client.ok()), "OK");
}
