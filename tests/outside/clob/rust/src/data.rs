//! Trades, and reads with each of the optional filters what the Data API says of it: by each name
//! of the wallet, value by value.

use std::collections::BTreeMap;

use polymarket_client_sdk_v2::POLYGON;
use polymarket_client_sdk_v2::auth::Signer as _;
use polymarket_client_sdk_v2::clob::types::request::TradesRequest as MadeTradesRequest;
use polymarket_client_sdk_v2::clob::types::response::{MarketResponse, TradeResponse};
use polymarket_client_sdk_v2::clob::types::{Amount, OrderType, Side as MadeSide};
use polymarket_client_sdk_v2::data::Client;
use polymarket_client_sdk_v2::data::types::request::{
    ActivityRequest, BuilderLeaderboardRequest, BuilderVolumeRequest, ClosedPositionsRequest,
    HoldersRequest, LiveVolumeRequest, OpenInterestRequest, PositionsRequest, TradedRequest,
    TraderLeaderboardRequest, TradesRequest, ValueRequest,
};
use polymarket_client_sdk_v2::data::types::response::{Activity, ClosedPosition, Position, Trade};
use polymarket_client_sdk_v2::data::types::{
    ActivitySortBy, ActivityType, ClosedPositionSortBy, LeaderboardCategory, LeaderboardOrderBy,
    MarketFilter, PositionSortBy, Side, SortDirection, TimePeriod, TradeFilter,
};
use polymarket_client_sdk_v2::gamma;
use polymarket_client_sdk_v2::gamma::types::request::MarketsRequest;
use polymarket_client_sdk_v2::types::{Address, B256, DateTime, Decimal, U256};
use polymarket_client_sdk_v2::{derive_proxy_wallet, derive_safe_wallet};
use rust_decimal::RoundingStrategy;

use super::orders::{Outcome, outcomes};
use super::{Wallet, check_refused, signer};

/// How many shares of each outcome are bought, and how many of them are sold: a part, or all.
const BOUGHT: Decimal = Decimal::from_parts(20, 0, 0, false, 0);
const PART: Decimal = Decimal::from_parts(25, 0, 0, false, 1);

/// A moment long ago, in seconds.
const EARLY: u64 = 1_000_000_000;

/// A name that is in no question.
const NO_TITLE: &str = "no question says this";

/// Reads a list with these filters.
macro_rules! rows {
    ($client:expr, $list:ident($request:ident { $($filter:ident: $value:expr),* $(,)? })) => {{
        let request = $request::builder()$(.$filter($value))*.build();
        $client.$list(&request).await.unwrap_or_else(|error| panic!("{request:?}: {error}"))
    }};
}

/// Checks how many rows a list has with each of these filters on its own.
macro_rules! counted {
    ($client:expr, $list:ident($request:ident { $user:expr }), {
        $($filter:ident: $value:expr => $count:expr),* $(,)?
    }) => {
        $({
            let rows = rows!($client, $list($request { user: $user, $filter: $value }));
            assert_eq!(rows.len(), $count, "{}: {rows:?}", stringify!($filter));
        })*
    };
}

/// Checks that a list is sorted both ways by each of these.
macro_rules! sorted {
    ($client:expr, $list:ident($request:ident { $user:expr }), $sort:ident {
        $($by:ident => $key:expr),* $(,)?
    }) => {
        $({
            let filters = |direction| {
                let request = $request::builder().user($user).sort_by($sort::$by);
                request.sort_direction(direction).build()
            };
            let rising = $client.$list(&filters(SortDirection::Asc)).await.unwrap();
            assert!(rising.is_sorted_by_key($key), "{}: {rising:?}", stringify!($by));
            let mut falling = $client.$list(&filters(SortDirection::Desc)).await.unwrap();
            falling.reverse();
            assert!(falling.is_sorted_by_key($key), "{}: {falling:?}", stringify!($by));
            assert_eq!(rising.len(), falling.len());
        })*
    };
}

/// Checks that a list is the same in parts of two rows.
macro_rules! in_parts {
    ($client:expr, $list:ident($request:ident { $user:expr }), $expected:expr) => {{
        let mut rows = Vec::new();
        for offset in (0..).step_by(2) {
            let request = $request::builder().user($user).limit(2).unwrap();
            let request = request.offset(offset).unwrap().build();
            let part = $client.$list(&request).await.unwrap();
            let is_last = part.len() < 2;
            rows.extend(part);
            if is_last {
                break;
            }
        }
        assert_eq!(format!("{rows:?}"), format!("{:?}", $expected));
    }};
}

/// What was traded.
struct Traded {
    /// Outcomes of which shares are held, and those that were sold again.
    held: [Outcome; 2],
    sold: [Outcome; 2],
    /// What the order book's interface says of the trades, newest first.
    trades: Vec<TradeResponse>,
    markets: BTreeMap<U256, MarketResponse>,
    /// The id and the name of the second market's event. The first market has another one, or none.
    event: [String; 2],
}

pub(super) async fn read(host: &str, wallet: &Wallet) {
    let traded = trade(host, wallet).await;
    let client = Client::new(host).unwrap();
    assert_eq!(client.host().as_str().trim_end_matches('/'), host);
    let address = signer().address();
    let derived = [derive_proxy_wallet, derive_safe_wallet].map(|it| it(address, POLYGON).unwrap());
    for user in [&[address], &derived[..]].concat() {
        let trades = check_trades(&client, user, &traded).await;
        check_activity(&client, user, &traded, &trades).await;
        check_positions(&client, user, &traded).await;
        check_closed(&client, user, &traded).await;
        let answer = client.traded(&TradedRequest::builder().user(user).build()).await.unwrap();
        assert_eq!((answer.user, answer.traded), (user, 2));
    }
    check_nobody(&client).await;
    check_absent(&client, &traded).await;
}

/// Buys each outcome of two markets, and sells a part of the first one's shares and all of the
/// other's.
async fn trade(host: &str, wallet: &Wallet) -> Traded {
    let (held, sold) = (outcomes(wallet, 0).await, outcomes(wallet, 1).await);
    let mut markets = BTreeMap::new();
    for (outcomes, count) in [(&held, PART), (&sold, BOUGHT)] {
        for outcome in outcomes {
            for (side, shares) in [(MadeSide::Buy, BOUGHT), (MadeSide::Sell, count)] {
                let order = wallet.market_order().token_id(outcome.token).side(side);
                let order = order.amount(Amount::shares(shares).unwrap());
                let order = order.order_type(OrderType::FOK).build().await.unwrap();
                let signed = wallet.sign(&signer(), order).await.unwrap();
                assert!(wallet.post_order(signed).await.unwrap().success);
            }
            let market = wallet.market(&outcome.condition.to_string()).await.unwrap();
            markets.insert(outcome.token, market);
        }
    }
    let page = wallet.trades(&MadeTradesRequest::default(), None).await.unwrap();
    assert_eq!((page.data.len(), page.next_cursor.as_str()), (8, "LTE="));
    let event = event(host, held[1].condition).await;
    Traded { held, sold, trades: page.data, markets, event }
}

/// The id and the name of a market's event in the catalogue.
async fn event(host: &str, condition: B256) -> [String; 2] {
    let catalogue = gamma::Client::new(&format!("{host}/gamma/")).unwrap();
    let request = MarketsRequest::builder().condition_ids(vec![condition]).build();
    let [market] = &catalogue.markets(&request).await.unwrap()[..] else { panic!("no market") };
    let event = &market.events.as_ref().unwrap()[0];
    [event.id.clone(), event.slug.clone().unwrap()]
}

impl Traded {
    /// Selects the second market.
    fn of_event(&self) -> MarketFilter {
        MarketFilter::event_ids([self.event[0].clone()])
    }

    fn market(&self, token: U256) -> &MarketResponse {
        &self.markets[&token]
    }

    /// The index of an outcome in its market.
    fn index(&self, token: U256) -> usize {
        self.market(token).tokens.iter().position(|it| it.token_id == token).unwrap()
    }

    fn label(&self, token: U256) -> &str {
        &self.market(token).tokens[self.index(token)].outcome
    }

    fn price(&self, token: U256) -> Decimal {
        self.market(token).tokens[self.index(token)].price
    }

    /// Checks what any row says of its market.
    #[track_caller]
    fn check_market(&self, token: U256, title: &str, slug: &str, icon: &str, index: i32) {
        let market = self.market(token);
        assert_eq!((title, slug, icon), (&*market.question, &*market.market_slug, &*market.icon));
        assert_eq!(usize::try_from(index), Ok(self.index(token)));
    }
}

fn side(side: MadeSide) -> Side {
    if side == MadeSide::Buy { Side::Buy } else { Side::Sell }
}

/// The part of the whole in percent.
fn percent(part: Decimal, whole: Decimal) -> Decimal {
    let percent = part * Decimal::ONE_HUNDRED / whole;
    percent.round_dp_with_strategy(6, RoundingStrategy::MidpointNearestEven)
}

/// Returns the trades, newest first, each of which is compared.
async fn check_trades(client: &Client, user: Address, traded: &Traded) -> Vec<Trade> {
    let trades = rows!(client, trades(TradesRequest { user: user }));
    assert_eq!(trades.len(), traded.trades.len());
    let named = trades.iter().filter(|row| row.event_slug == traded.event[1]);
    assert!(named.clone().all(|row| row.condition_id == traded.held[1].condition));
    assert_eq!(named.count(), 4);
    for (row, made) in trades.iter().zip(&traded.trades) {
        assert_eq!((row.proxy_wallet, row.asset), (user, made.asset_id));
        assert_eq!((row.condition_id, &row.side), (made.market, &side(made.side)));
        assert_eq!((row.size, row.price), (made.size, made.price));
        assert_eq!(row.timestamp, made.match_time.timestamp());
        assert_eq!((&row.outcome, row.transaction_hash), (&made.outcome, made.transaction_hash));
        traded.check_market(row.asset, &row.title, &row.slug, &row.icon, row.outcome_index);
        let profile = [&row.name, &row.pseudonym, &row.bio, &row.profile_image];
        assert!(profile.iter().all(|it| it.is_none()), "{row:?}");
        assert_eq!(row.profile_image_optimized, None);
    }
    let [first, second] = traded.held.each_ref().map(|it| it.condition);
    let dollars = |row: &Trade| row.size * row.price;
    let most = trades.iter().map(dollars).max().unwrap();
    let costly = trades.iter().filter(|row| dollars(row) >= most).count();
    counted!(client, trades(TradesRequest { user }), {
        filter: MarketFilter::markets([first]) => 4,
        filter: MarketFilter::markets([first, second]) => 8,
        filter: traded.of_event() => 4,
        filter: MarketFilter::event_ids(["2000000000".to_owned()]) => 0,
        taker_only: true => 8,
        taker_only: false => 8,
        trade_filter: TradeFilter::cash(most).unwrap() => costly,
        trade_filter: TradeFilter::tokens(BOUGHT).unwrap() => 6,
        trade_filter: TradeFilter::tokens(BOUGHT + PART).unwrap() => 0,
        side: Side::Buy => 4,
        side: Side::Sell => 4,
    });
    in_parts!(client, trades(TradesRequest { user }), trades);
    trades
}

async fn check_activity(client: &Client, user: Address, traded: &Traded, trades: &[Trade]) {
    let activity = rows!(client, activity(ActivityRequest { user: user }));
    assert_eq!(activity.len(), trades.len());
    for (row, trade) in activity.iter().zip(trades) {
        assert_eq!((row.proxy_wallet, &row.activity_type), (user, &ActivityType::Trade));
        assert_eq!((row.condition_id, row.asset), (Some(trade.condition_id), Some(trade.asset)));
        assert_eq!((row.size, row.price), (trade.size, Some(trade.price)));
        assert_eq!(row.usdc_size, trade.size * trade.price);
        assert_eq!((row.side.as_ref(), row.timestamp), (Some(&trade.side), trade.timestamp));
        assert_eq!(
            (row.transaction_hash, row.outcome.as_ref()),
            (trade.transaction_hash, Some(&trade.outcome))
        );
        assert_eq!(row.outcome_index, Some(trade.outcome_index));
        assert_eq!(
            (row.title.as_ref(), row.slug.as_ref()),
            (Some(&trade.title), Some(&trade.slug))
        );
        assert_eq!(row.event_slug.as_deref().unwrap_or_default(), trade.event_slug);
        assert_eq!(row.icon.as_deref().unwrap_or_default(), trade.icon);
        assert_eq!(row.name, None);
    }
    let condition = traded.held[0].condition;
    counted!(client, activity(ActivityRequest { user }), {
        filter: MarketFilter::markets([condition]) => 4,
        filter: traded.of_event() => 4,
        filter: MarketFilter::event_ids(["2000000000".to_owned()]) => 0,
        activity_types: vec![ActivityType::Trade, ActivityType::Redeem] => 8,
        activity_types: vec![ActivityType::Redeem, ActivityType::MakerRebate] => 0,
        start: EARLY => 8,
        end: EARLY => 0,
        side: Side::Sell => 4,
    });
    sorted!(client, activity(ActivityRequest { user }), ActivitySortBy {
        Timestamp => |row: &Activity| row.timestamp,
        Tokens => |row: &Activity| row.size,
        Cash => |row: &Activity| row.usdc_size,
    });
    in_parts!(client, activity(ActivityRequest { user }), activity);
}

async fn check_positions(client: &Client, user: Address, traded: &Traded) {
    let positions = rows!(client, positions(PositionsRequest { user: user }));
    assert_eq!(positions.len(), traded.held.len());
    for outcome in &traded.held {
        let row = positions.iter().find(|row| row.asset == outcome.token).unwrap();
        check_position(row, user, outcome, traded);
        let market = vec![outcome.condition];
        let [answer] = &rows!(client, value(ValueRequest { user: user, markets: market }))[..]
        else {
            panic!("several values")
        };
        assert_eq!((answer.user, answer.value), (user, row.current_value));
    }
    let all: Decimal = positions.iter().map(|row| row.current_value).sum();
    assert_eq!(rows!(client, value(ValueRequest { user: user }))[0].value, all);
    let title = &positions[0].title;
    let same = positions.iter().filter(|row| row.title.contains(title)).count();
    counted!(client, positions(PositionsRequest { user }), {
        filter: MarketFilter::markets([traded.held[0].condition]) => 1,
        filter: traded.of_event() => 1,
        filter: MarketFilter::event_ids(["2000000000".to_owned()]) => 0,
        size_threshold: BOUGHT - PART => 2,
        size_threshold: BOUGHT => 0,
        redeemable: true => 0,
        redeemable: false => 2,
        mergeable: true => 0,
        mergeable: false => 2,
        title: &**title => same,
        title: NO_TITLE => 0,
    });
    sorted!(client, positions(PositionsRequest { user }), PositionSortBy {
        Current => |row: &Position| row.current_value,
        Initial => |row: &Position| row.initial_value,
        Tokens => |row: &Position| row.size,
        CashPnl => |row: &Position| row.cash_pnl,
        PercentPnl => |row: &Position| row.percent_pnl,
        Title => |row: &Position| row.title.clone(),
        Resolving => |row: &Position| row.end_date,
        Price => |row: &Position| row.cur_price,
        AvgPrice => |row: &Position| row.avg_price,
    });
    in_parts!(client, positions(PositionsRequest { user }), positions);
}

/// A position of which a part was sold.
fn check_position(row: &Position, user: Address, outcome: &Outcome, traded: &Traded) {
    let (bid, ask, shares) = (outcome.bid, outcome.ask, BOUGHT - PART);
    let (market, price) = (traded.market(outcome.token), traded.price(outcome.token));
    assert_eq!((row.proxy_wallet, row.condition_id), (user, outcome.condition));
    assert_eq!((row.size, row.avg_price, row.cur_price), (shares, ask, price));
    assert_eq!((row.initial_value, row.current_value), (shares * ask, shares * price));
    assert_eq!(row.cash_pnl, row.current_value - row.initial_value);
    assert_eq!(row.percent_pnl, percent(row.cash_pnl, row.initial_value));
    assert_eq!((row.total_bought, row.realized_pnl), (BOUGHT, PART * (bid - ask)));
    assert_eq!(row.percent_realized_pnl, percent(row.realized_pnl, PART * ask));
    assert!(!row.redeemable && !row.mergeable);
    traded.check_market(row.asset, &row.title, &row.slug, &row.icon, row.outcome_index);
    assert_eq!(row.outcome, traded.label(outcome.token));
    let other = &market.tokens[1 - traded.index(outcome.token)];
    assert_eq!((&row.opposite_outcome, row.opposite_asset), (&other.outcome, other.token_id));
    assert_eq!(row.end_date, market.end_date_iso.map(|it| it.date_naive()));
    assert_eq!(row.negative_risk, market.neg_risk);
    if outcome.condition == traded.held[1].condition {
        assert_eq!(
            (row.event_id.as_ref(), &row.event_slug),
            (Some(&traded.event[0]), &traded.event[1])
        );
    }
}

async fn check_closed(client: &Client, user: Address, traded: &Traded) {
    let closed = rows!(client, closed_positions(ClosedPositionsRequest { user: user }));
    assert_eq!(closed.len(), traded.sold.len());
    for outcome in &traded.sold {
        let row = closed.iter().find(|row| row.asset == outcome.token).unwrap();
        check_closed_position(row, user, outcome, traded);
    }
    let title = &closed[0].title;
    let same = closed.iter().filter(|row| row.title.contains(title)).count();
    counted!(client, closed_positions(ClosedPositionsRequest { user }), {
        filter: MarketFilter::markets([traded.sold[0].condition]) => 1,
        filter: traded.of_event() => 1,
        filter: MarketFilter::event_ids(["2000000000".to_owned()]) => 0,
        title: &**title => same,
        title: NO_TITLE => 0,
    });
    sorted!(client, closed_positions(ClosedPositionsRequest { user }), ClosedPositionSortBy {
        RealizedPnl => |row: &ClosedPosition| row.realized_pnl,
        Title => |row: &ClosedPosition| row.title.clone(),
        Price => |row: &ClosedPosition| row.cur_price,
        AvgPrice => |row: &ClosedPosition| row.avg_price,
        Timestamp => |row: &ClosedPosition| row.timestamp,
    });
    in_parts!(client, closed_positions(ClosedPositionsRequest { user }), closed);
}

fn check_closed_position(row: &ClosedPosition, user: Address, outcome: &Outcome, traded: &Traded) {
    let market = traded.market(outcome.token);
    assert_eq!((row.proxy_wallet, row.condition_id), (user, outcome.condition));
    assert_eq!((row.avg_price, row.cur_price), (outcome.ask, traded.price(outcome.token)));
    let profit = BOUGHT * (outcome.bid - outcome.ask);
    assert_eq!((row.total_bought, row.realized_pnl), (BOUGHT, profit));
    let last = traded.trades.iter().find(|it| it.asset_id == outcome.token).unwrap();
    assert_eq!(row.timestamp, last.match_time.timestamp());
    traded.check_market(row.asset, &row.title, &row.slug, &row.icon, row.outcome_index);
    assert_eq!(row.outcome, traded.label(outcome.token));
    let other = &market.tokens[1 - traded.index(outcome.token)];
    assert_eq!((&row.opposite_outcome, row.opposite_asset), (&other.outcome, other.token_id));
    assert_eq!(row.end_date, market.end_date_iso.unwrap_or(DateTime::UNIX_EPOCH));
}

/// A wallet that has done nothing.
async fn check_nobody(client: &Client) {
    let user = Address::repeat_byte(0xde);
    assert!(rows!(client, trades(TradesRequest { user: user })).is_empty());
    assert!(rows!(client, activity(ActivityRequest { user: user })).is_empty());
    assert!(rows!(client, positions(PositionsRequest { user: user })).is_empty());
    assert!(rows!(client, closed_positions(ClosedPositionsRequest { user: user })).is_empty());
    assert_eq!(rows!(client, value(ValueRequest { user: user }))[0].value, Decimal::ZERO);
    assert_eq!(rows!(client, traded(TradedRequest { user: user })).traded, 0);
}

/// What this server does not have.
async fn check_absent(client: &Client, traded: &Traded) {
    let no_user = client.trades(&TradesRequest::default()).await;
    check_refused(no_user, 400, "required query param 'user' not provided");
    let day = TimePeriod::Day;
    let builders = BuilderLeaderboardRequest::builder().time_period(day).limit(5).unwrap();
    let builders = builders.offset(1).unwrap().build();
    assert!(client.builder_leaderboard(&builders).await.unwrap().is_empty());
    let volume = BuilderVolumeRequest::builder().time_period(day).build();
    assert!(client.builder_volume(&volume).await.unwrap().is_empty());
    // At the root is the order book's answer, which is no object.
    assert!(client.health().await.is_err());
    let markets = vec![traded.held[0].condition];
    let holders = HoldersRequest::builder().markets(markets.clone()).build();
    let leaderboard = TraderLeaderboardRequest::builder()
        .category(LeaderboardCategory::Overall)
        .time_period(day)
        .order_by(LeaderboardOrderBy::Pnl)
        .build();
    for refused in [
        client.holders(&holders).await.err(),
        client.open_interest(&OpenInterestRequest::builder().markets(markets).build()).await.err(),
        client.live_volume(&LiveVolumeRequest::builder().id(1).build()).await.err(),
        client.leaderboard(&leaderboard).await.err(),
    ] {
        let refused = refused.unwrap().to_string();
        assert!(refused.contains("404"), "{refused}");
    }
}
