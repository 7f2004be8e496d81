//! Trades with Polymarket's Rust client, value by value, as `orders.py` does with those for Python.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use polymarket_client_sdk_v2::POLYGON;
use polymarket_client_sdk_v2::auth::{Credentials, LocalSigner, Signer};
use polymarket_client_sdk_v2::clob::types::request::{
    BalanceAllowanceRequest, CancelMarketOrderRequest, OrderBookSummaryRequest, OrdersRequest,
    TradesRequest,
};
use polymarket_client_sdk_v2::clob::types::response::{
    CancelOrdersResponse, OpenOrderResponse, Page, PostOrderResponse, TradeResponse,
};
use polymarket_client_sdk_v2::clob::types::{
    Amount, AssetType, OrderPayload, OrderStatusType, OrderType, OrderV2, Side, SignableOrder,
    SignatureType, SignedOrder, TradeStatusType, TraderSide,
};
use polymarket_client_sdk_v2::clob::{Client, Config};
use polymarket_client_sdk_v2::error::{Error, Status};
use polymarket_client_sdk_v2::types::{Address, B256, DateTime, Decimal, U256, Utc};
use rust_decimal::RoundingStrategy;
use serde_json::{Value, json};

use super::{Called, QUIET, Wallet, exposed, text};

/// A signer and its wallets by signature type.
const WALLETS: &str = include_str!("../../wallets.json");

const TYPES: [SignatureType; 4] =
    [SignatureType::Eoa, SignatureType::Proxy, SignatureType::GnosisSafe, SignatureType::Poly1271];

const MICROS: Decimal = Decimal::from_parts(1_000_000, 0, 0, false, 0);

/// How long a client may take to send a heartbeat by itself.
const BEAT_TIME_MAX: Duration = Duration::from_secs(60);

/// In how many seconds GTD orders expire.
const EXPIRES_SECONDS: i64 = 600;

const ENDED: &str = "order can't be found - already canceled or matched";

/// Checks that an answer has these values.
macro_rules! check {
    ($answer:expr, $($field:ident: $expected:expr),+ $(,)?) => {
        $(assert_eq!($answer.$field, $expected, "{}: {:?}", stringify!($field), $answer);)+
    };
}

/// An outcome to trade, with the best prices of its book, which stands still.
pub(super) struct Outcome {
    pub(super) token: U256,
    pub(super) condition: B256,
    pub(super) bid: Decimal,
    pub(super) ask: Decimal,
    fee_rate: Decimal,
}

/// The wallets of a signer, and the dollars and shares that its account should have.
struct Trader<'c, S> {
    signer: S,
    wallets: Vec<Wallet>,
    called: &'c mut Called,
    cash: Decimal,
    shares: BTreeMap<String, Decimal>,
    /// Whether the server names the transactions of an order that matches.
    has_hashes: bool,
}

/// What an order that matches should give and take.
struct Expected<'o> {
    outcome: &'o Outcome,
    side: Side,
    order_type: OrderType,
    dollars: Decimal,
    shares: Decimal,
}

fn facts() -> Value {
    serde_json::from_str(WALLETS).unwrap()
}

fn signer() -> impl Signer {
    LocalSigner::from_str(&text(&facts()["key"])).unwrap().with_chain_id(Some(POLYGON))
}

async fn wallet(host: &str, credentials: &Credentials, kind: usize, interval: Duration) -> Wallet {
    let config = Config::builder().heartbeat_interval(interval).build();
    let client = Client::new(host, config).unwrap();
    let signer = signer();
    let builder = client.authentication_builder(&signer).credentials(credentials.clone());
    let builder = builder.signature_type(TYPES[kind]);
    let builder = if kind == 0 {
        builder
    } else {
        builder.funder(Address::from_str(&text(&facts()["wallets"][kind])).unwrap())
    };
    builder.authenticate().await.unwrap()
}

async fn trader<'c>(
    host: &str,
    credentials: &Credentials,
    called: &'c mut Called,
) -> Trader<'c, impl Signer> {
    let mut wallets = Vec::new();
    for kind in 0..TYPES.len() {
        wallets.push(wallet(host, credentials, kind, QUIET).await);
    }
    let cash = Decimal::ONE_THOUSAND;
    Trader { signer: signer(), wallets, called, cash, shares: BTreeMap::new(), has_hashes: false }
}

/// The outcomes with this index of a market without fees and of a neg-risk market with fees.
pub(super) async fn outcomes(client: &Wallet, index: usize) -> [Outcome; 2] {
    let markets = client.sampling_markets(None).await.unwrap().data;
    let mut found = Vec::new();
    for has_fee in [false, true] {
        let market = markets.iter().find(|market| {
            market.minimum_tick_size == Decimal::new(1, 2)
                && market.neg_risk == has_fee
                && (market.taker_base_fee > Decimal::ZERO) == has_fee
        });
        let market = market.unwrap();
        let (token, condition) = (market.tokens[index].token_id, market.condition_id.unwrap());
        let request = OrderBookSummaryRequest::builder().token_id(token).build();
        let book = client.order_book(&request).await.unwrap();
        let (bid, ask) = (book.bids.last().unwrap().price, book.asks.last().unwrap().price);
        let info = client.clob_market_info(&condition.to_string()).await.unwrap();
        let fee_rate = info.fee_details.map_or(Decimal::ZERO, |details| {
            assert_eq!(details.exponent, 1);
            details.rate
        });
        found.push(Outcome { token, condition, bid, ask, fee_rate });
    }
    found.try_into().unwrap_or_else(|_| unreachable!("two were found"))
}

pub(super) async fn first(host: &str, called: &mut Called) -> Value {
    let credentials = super::client(host).create_or_derive_api_key(&signer(), None).await.unwrap();
    let mut trader = trader(host, &credentials, called).await;
    let mut placed = Vec::new();
    for outcome in outcomes(&trader.wallets[0], 0).await {
        placed.extend(trader.trade(&outcome).await);
        placed.extend(trader.rest(&outcome).await);
        trader.refuse(&outcome).await;
    }
    trader.repeat(&placed).await;
    trader.check().await;
    let placed: Vec<Value> = placed.iter().map(saved).collect();
    json!({
        "credentials": exposed(&credentials),
        "placed": placed,
        "open": format!("{:?}", trader.open().await),
        "trades": format!("{:?}", trader.trades(&TradesRequest::default()).await),
        "cash": trader.cash,
        "shares": trader.shares,
    })
}

/// What was there before the server was killed is there after it.
pub(super) async fn second(host: &str, known: &Value, called: &mut Called) {
    let credentials: Credentials = serde_json::from_value(known["credentials"].clone()).unwrap();
    let mut trader = trader(host, &credentials, called).await;
    trader.cash = serde_json::from_value(known["cash"].clone()).unwrap();
    trader.shares = serde_json::from_value(known["shares"].clone()).unwrap();
    trader.has_hashes = true;
    trader.check().await;
    let open = trader.open().await;
    assert_eq!(format!("{open:?}"), text(&known["open"]));
    let trades = trader.trades(&TradesRequest::default()).await;
    assert_eq!(format!("{trades:?}"), text(&known["trades"]));
    let placed: Vec<Placed> = known["placed"].as_array().unwrap().iter().map(restored).collect();
    trader.repeat(&placed).await;
    trader.check().await;
    let [standard, neg_risk] = outcomes(&trader.wallets[0], 0).await;
    trader.trade(&standard).await;
    let ids: Vec<&str> = open.iter().map(|row| row.id.as_str()).collect();
    trader.cancel(&ids, &standard, &neg_risk).await;
    trader.check().await;
    beat(host, &credentials, trader.called).await;
}

/// An order that was taken, its id, and those of its trades.
struct Placed {
    order: SignableOrder,
    id: String,
    trades: Vec<String>,
}

fn saved(placed: &Placed) -> Value {
    let Placed { order, id, trades } = placed;
    let (signed, expiration) = (order.order(), order.v2().expiration);
    let order_type = &order.order_type;
    json!({"order": signed, "expiration": expiration.to_string(), "type": order_type, "id": id,
           "trades": trades})
}

fn restored(saved: &Value) -> Placed {
    let from = &saved["order"];
    let number = |value: &Value| U256::from_str(&text(value)).unwrap();
    let small = |value: &Value| u8::try_from(value.as_u64().unwrap()).unwrap();
    let mut order = OrderV2::default();
    order.salt = U256::from(from["salt"].as_u64().unwrap());
    order.maker = Address::from_str(&text(&from["maker"])).unwrap();
    order.signer = Address::from_str(&text(&from["signer"])).unwrap();
    order.tokenId = number(&from["tokenId"]);
    order.makerAmount = number(&from["makerAmount"]);
    order.takerAmount = number(&from["takerAmount"]);
    order.side = small(&from["side"]);
    order.signatureType = small(&from["signatureType"]);
    order.timestamp = number(&from["timestamp"]);
    let payload = OrderPayload::new(order, number(&saved["expiration"]));
    let order_type: OrderType = serde_json::from_value(saved["type"].clone()).unwrap();
    let order = SignableOrder::builder().payload(payload).order_type(order_type).build();
    let trades = saved["trades"].as_array().unwrap().iter().map(text).collect();
    Placed { order, id: text(&saved["id"]), trades }
}

/// A heartbeat that names another one than the newest is refused, also if the client itself has
/// sent the newest one.
async fn beat(host: &str, credentials: &Credentials, called: &mut Called) {
    let mut wallet = wallet(host, credentials, 0, Duration::from_millis(20)).await;
    assert!(call!(called, wallet.heartbeats_active()));
    ok!(called, wallet.stop_heartbeats());
    assert!(!wallet.heartbeats_active());
    let mut newest = ok!(called, wallet.post_heartbeat(None)).heartbeat_id;
    newest = ok!(called, wallet.post_heartbeat(Some(newest))).heartbeat_id;
    called.insert("start_heartbeats".to_owned());
    Wallet::start_heartbeats(&mut wallet).unwrap();
    let began = Instant::now();
    let refused = loop {
        assert!(began.elapsed() < BEAT_TIME_MAX, "the client sends no heartbeats");
        match wallet.post_heartbeat(Some(newest)).await {
            Ok(answer) => newest = answer.heartbeat_id,
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    check_refused(Err::<(), _>(refused), "Invalid Heartbeat ID");
    ok!(called, wallet.stop_heartbeats());
}

/// How often the server was asked for trades, by its metrics.
fn polls() -> u64 {
    let address = std::env::var("METRICS").expect("METRICS is the address of the metrics");
    let mut stream = TcpStream::connect(&address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let name = "paperbourse_http_requests_total{operation=\"GET /data/trades\",status=\"200\"} ";
    page.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |count| count.parse().unwrap())
}

#[track_caller]
fn check_refused<T>(result: Result<T, Error>, text: &str) {
    let error = result.err().expect("not refused");
    let refusal: &Status = error.downcast_ref().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(refusal.status_code, 400, "{refusal}");
    assert!(refusal.message.contains(text), "{refusal}");
}

fn dollars(dollars: u64) -> Amount {
    Amount::usdc(Decimal::from(dollars)).unwrap()
}

impl<S: Signer> Trader<'_, S> {
    async fn check(&self) {
        let client = &self.wallets[0];
        let cash = BalanceAllowanceRequest::builder().asset_type(AssetType::Collateral).build();
        let balance = client.balance_allowance(cash).await.unwrap().balance;
        assert_eq!(balance, self.cash * MICROS);
        for (token, shares) in &self.shares {
            let request = BalanceAllowanceRequest::builder().asset_type(AssetType::Conditional);
            let request = request.token_id(U256::from_str(token).unwrap()).build();
            let balance = client.balance_allowance(request).await.unwrap().balance;
            assert_eq!(balance, *shares * MICROS);
        }
    }

    async fn open(&mut self) -> Vec<OpenOrderResponse> {
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        listed!(called, client.orders(&OrdersRequest::default()))
    }

    async fn trades(&mut self, request: &TradesRequest) -> Vec<TradeResponse> {
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        listed!(called, client.trades(request))
    }

    async fn sign(&mut self, order: &SignableOrder) -> SignedOrder {
        let (called, client, signer) = (&mut *self.called, &self.wallets[0], &self.signer);
        ok!(called, client.sign(signer, order.clone()))
    }

    async fn post(&mut self, order: &SignableOrder) -> Result<PostOrderResponse, Error> {
        let signed = self.sign(order).await;
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        call!(called, client.post_order(signed)).await
    }

    async fn market(
        &mut self,
        kind: usize,
        outcome: &Outcome,
        (side, amount): (Side, Amount),
        order_type: OrderType,
        price: Option<Decimal>,
    ) -> SignableOrder {
        let (called, client) = (&mut *self.called, &self.wallets[kind]);
        let order = call!(called, client.market_order());
        let order = order.token_id(outcome.token).side(side).amount(amount).order_type(order_type);
        let order = if let Some(price) = price { order.price(price) } else { order };
        order.build().await.unwrap()
    }

    async fn limit(
        &mut self,
        outcome: &Outcome,
        price: Decimal,
        size: u64,
        expiration: Option<DateTime<Utc>>,
        post_only: bool,
    ) -> SignableOrder {
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        let order = call!(called, client.limit_order());
        let order = order.token_id(outcome.token).side(Side::Buy).price(price);
        let order = order.size(Decimal::from(size)).post_only(post_only);
        let order = match expiration {
            Some(at) => order.expiration(at).order_type(OrderType::GTD),
            None => order,
        };
        order.build().await.unwrap()
    }

    /// Posts an order that matches.
    async fn check_matched(&mut self, order: SignableOrder, expected: Expected<'_>) -> Placed {
        let Expected { outcome, side, order_type, dollars, shares } = expected;
        let before = polls();
        let answer = self.post(&order).await.unwrap();
        assert_eq!(polls() - before, u64::from(!self.has_hashes));
        let is_buy = side == Side::Buy;
        let (making, taking) = if is_buy { (dollars, shares) } else { (shares, dollars) };
        check!(answer, success: true, status: OrderStatusType::Matched, making_amount: making,
               taking_amount: taking);
        let price = if is_buy { outcome.ask } else { outcome.bid };
        let fee = shares * outcome.fee_rate * price * (Decimal::ONE - price);
        let fee = fee.round_dp_with_strategy(5, RoundingStrategy::MidpointNearestEven);
        let sign = if is_buy { Decimal::ONE } else { Decimal::NEGATIVE_ONE };
        assert_eq!(dollars, shares * price);
        self.cash -= sign * dollars + fee;
        *self.shares.entry(outcome.token.to_string()).or_default() += sign * shares;
        self.check().await;
        let request = TradesRequest::builder().id(answer.trade_ids[0].clone()).build();
        let [trade] = &self.trades(&request).await[..] else { panic!("{answer:?}") };
        check!(trade, taker_order_id: answer.order_id, asset_id: outcome.token,
               market: outcome.condition, side: side, size: shares, price: price,
               status: TradeStatusType::Confirmed, trader_side: TraderSide::Taker);
        assert_eq!(answer.transaction_hashes, [trade.transaction_hash]);
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        let row = ok!(called, client.order(&answer.order_id));
        check!(row, status: OrderStatusType::Matched, size_matched: shares,
               order_type: order_type);
        Placed { order, id: answer.order_id, trades: answer.trade_ids }
    }

    /// Buys and sells, once with each kind of wallet.
    async fn trade(&mut self, outcome: &Outcome) -> Vec<Placed> {
        let mut taken = Vec::new();
        let shares = (Decimal::from(20) / outcome.ask).trunc_with_scale(4);
        let sold = Decimal::new(1234, 2);
        for (kind, signature_type) in TYPES.into_iter().enumerate() {
            let order_type = if kind % 2 == 0 { OrderType::FOK } else { OrderType::FAK };
            for (side, amount, shares, price) in [
                (Side::Buy, dollars(20), shares, outcome.ask),
                (Side::Buy, Amount::shares(Decimal::TEN).unwrap(), Decimal::TEN, outcome.ask),
                (Side::Sell, Amount::shares(sold).unwrap(), sold, outcome.bid),
            ] {
                let asked = (side, amount);
                let order = self.market(kind, outcome, asked, order_type.clone(), None).await;
                assert_eq!(order.order().signatureType, signature_type as u8);
                let (order_type, dollars) = (order_type.clone(), shares * price);
                let expected = Expected { outcome, side, order_type, dollars, shares };
                taken.push(self.check_matched(order, expected).await);
            }
        }
        taken
    }

    /// Places orders that rest, and one that takes.
    async fn rest(&mut self, outcome: &Outcome) -> Vec<Placed> {
        let expiration = DateTime::from_timestamp_secs(Utc::now().timestamp() + EXPIRES_SECONDS);
        let mut placed = Vec::new();
        for (order_type, expires, post_only) in [
            (OrderType::GTC, None, false),
            (OrderType::GTD, expiration, false),
            (OrderType::GTC, None, true),
        ] {
            let order = self.limit(outcome, outcome.bid, 10, expires, post_only).await;
            let answer = self.post(&order).await.unwrap();
            check!(answer, success: true, status: OrderStatusType::Live,
                   making_amount: Decimal::ZERO, taking_amount: Decimal::ZERO);
            let (called, client) = (&mut *self.called, &self.wallets[0]);
            let row = ok!(called, client.order(&answer.order_id));
            check!(row, id: answer.order_id, status: OrderStatusType::Live, side: Side::Buy,
                   original_size: Decimal::TEN, size_matched: Decimal::ZERO, price: outcome.bid,
                   order_type: order_type,
                   expiration: expires.unwrap_or(DateTime::<Utc>::UNIX_EPOCH));
            assert!(self.open().await.contains(&row));
            placed.push(Placed { order, id: answer.order_id, trades: answer.trade_ids });
        }
        let order = self.limit(outcome, outcome.ask, 10, None, false).await;
        let (dollars, shares) = (Decimal::TEN * outcome.ask, Decimal::TEN);
        let (side, order_type) = (Side::Buy, OrderType::GTC);
        let expected = Expected { outcome, side, order_type, dollars, shares };
        placed.push(self.check_matched(order, expected).await);
        placed
    }

    /// An order that is sent again, in a list or as another type, is the order that it was.
    async fn repeat(&mut self, placed: &[Placed]) {
        for Placed { order, id, trades } in placed {
            let mut as_other_type = order.clone();
            as_other_type.order_type = OrderType::GTC;
            for sent in [order, &as_other_type] {
                let answer = self.post(sent).await.unwrap();
                check!(answer, order_id: *id, trade_ids: *trades);
            }
        }
        for some in placed.chunks(15) {
            let mut signed = Vec::new();
            for Placed { order, .. } in some {
                signed.push(self.sign(order).await);
            }
            let (called, client) = (&mut *self.called, &self.wallets[0]);
            let answers = ok!(called, client.post_orders(signed));
            assert_eq!(answers.len(), some.len());
            for (answer, Placed { id, trades, .. }) in answers.iter().zip(some) {
                check!(answer, success: true, order_id: *id, trade_ids: *trades);
            }
        }
    }

    /// Orders that the venue refuses, in its words.
    async fn refuse(&mut self, outcome: &Outcome) {
        let below = Some(outcome.bid - Decimal::new(1, 2));
        let small = Amount::usdc(Decimal::new(5, 1)).unwrap();
        let all = Amount::shares(Decimal::from(900_000)).unwrap();
        let soon = DateTime::from_timestamp_secs(Utc::now().timestamp() + 170);
        let poor = "not enough balance / allowance: the balance is not enough -> balance: ";
        let fok = "order couldn't be fully filled. FOK orders are fully filled or killed.";
        for (text, order) in [
            (poor, self.limit(outcome, outcome.bid, 100_000, None, false).await),
            (
                poor,
                self.market(0, outcome, (Side::Sell, all), OrderType::FAK, Some(outcome.bid)).await,
            ),
            ("lower than the minimum: 5", self.limit(outcome, outcome.bid, 2, None, false).await),
            (
                "min size: $1",
                self.market(0, outcome, (Side::Buy, small), OrderType::FOK, None).await,
            ),
            (fok, self.market(0, outcome, (Side::Buy, dollars(20)), OrderType::FOK, below).await),
            (
                "no orders found to match with FAK order.",
                self.market(0, outcome, (Side::Buy, dollars(20)), OrderType::FAK, below).await,
            ),
            (
                "invalid post-only order: order crosses book",
                self.limit(outcome, outcome.ask, 10, None, true).await,
            ),
            ("invalid expiration", self.limit(outcome, outcome.bid, 10, soon, false).await),
        ] {
            check_refused(self.post(&order).await, text);
        }
        let order = self.limit(outcome, outcome.bid, 2, None, false).await;
        let signed = self.sign(&order).await;
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        let [answer] = &ok!(called, client.post_orders(vec![signed]))[..] else { panic!() };
        check!(answer, success: false, order_id: "");
        let text = answer.error_msg.as_deref().unwrap();
        assert!(text.ends_with("Size (2) lower than the minimum: 5"), "{text}");
    }

    async fn place(&mut self, outcome: &Outcome) -> String {
        let order = self.limit(outcome, outcome.bid, 10, None, false).await;
        self.post(&order).await.unwrap().order_id
    }

    /// Cancels one order, a list, those of an outcome, those of a market, and all.
    async fn cancel(&mut self, ids: &[&str], standard: &Outcome, neg_risk: &Outcome) {
        let check = |answer: CancelOrdersResponse, ids: &[&str], ended: &[&str]| {
            let (mut expected, mut canceled) = (ids.to_vec(), answer.canceled.clone());
            expected.sort_unstable();
            canceled.sort_unstable();
            assert_eq!(canceled, expected);
            let ended = ended.iter().map(|&id| (id.to_owned(), ENDED.to_owned()));
            assert_eq!(answer.not_canceled, ended.collect());
        };
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        check(ok!(called, client.cancel_order(ids[0])), &ids[..1], &[]);
        assert_eq!(client.order(ids[0]).await.unwrap().status, OrderStatusType::Canceled);
        check(ok!(called, client.cancel_order(ids[0])), &[], &ids[..1]);
        check(ok!(called, client.cancel_orders(ids)), &ids[1..], &ids[..1]);
        let mut ids = Vec::new();
        for outcome in [standard, neg_risk, standard, neg_risk] {
            ids.push(self.place(outcome).await);
        }
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        let request = CancelMarketOrderRequest::builder().asset_id(standard.token).build();
        check(ok!(called, client.cancel_market_orders(&request)), &[&ids[0], &ids[2]], &[]);
        let request = CancelMarketOrderRequest::builder().market(neg_risk.condition).build();
        check(ok!(called, client.cancel_market_orders(&request)), &[&ids[1], &ids[3]], &[]);
        let ids = [self.place(standard).await, self.place(neg_risk).await];
        let (called, client) = (&mut *self.called, &self.wallets[0]);
        check(ok!(called, client.cancel_all_orders()), &[&ids[0], &ids[1]], &[]);
        check(ok!(called, client.cancel_all_orders()), &[], &[]);
        assert_eq!(self.open().await, []);
    }
}
