//! Reads markets and events from the catalogue, with each of the optional filters, and compares
//! them with what the order book's interface says.

use std::collections::BTreeSet;

use polymarket_client_sdk_v2::clob;
use polymarket_client_sdk_v2::gamma::Client;
use polymarket_client_sdk_v2::gamma::types::request::{
    CommentsByIdRequest, CommentsByUserAddressRequest, CommentsRequest, EventByIdRequest,
    EventBySlugRequest, EventTagsRequest, EventsRequest, MarketByIdRequest, MarketBySlugRequest,
    MarketTagsRequest, MarketsRequest, PublicProfileRequest, RelatedTagsByIdRequest,
    RelatedTagsBySlugRequest, SearchRequest, SeriesByIdRequest, SeriesListRequest, TagByIdRequest,
    TagBySlugRequest, TagsRequest, TeamsRequest,
};
use polymarket_client_sdk_v2::gamma::types::response::{Event, Market};
use polymarket_client_sdk_v2::gamma::types::{ParentEntityType, RelatedTagsStatus};
use polymarket_client_sdk_v2::types::{Address, B256, DateTime, Decimal, Utc};

/// The ids of what a list has with these filters.
macro_rules! found {
    ($client:ident.$list:ident($request:ident { $($filter:ident: $value:expr),* })) => {{
        let request = $request::builder().limit(500)$(.$filter($value))*.build();
        let rows = $client.$list(&request).await.unwrap();
        rows.into_iter().map(|row| row.id).collect::<BTreeSet<String>>()
    }};
}

/// Checks that each of these filters on its own finds nothing.
macro_rules! unknown {
    ($client:ident.$list:ident($request:ident { $($filter:ident: $value:expr),* $(,)? })) => {
        $({
            let rows = found!($client.$list($request { $filter: $value }));
            assert!(rows.is_empty(), "{}: {rows:?}", stringify!($filter));
        })*
    };
}

/// Checks that each of these parameters on its own selects nothing.
macro_rules! ignored {
    ($all:expr, $client:ident.$list:ident($request:ident {
        $($filter:ident: $value:expr),* $(,)?
    })) => {
        $({
            let rows = found!($client.$list($request { $filter: $value }));
            assert_eq!(rows, $all, "{}", stringify!($filter));
        })*
    };
}

pub(crate) async fn read(host: &str) {
    let client = Client::new(&format!("{host}/gamma/")).unwrap();
    assert_eq!(client.status().await.unwrap(), "OK");
    let markets = check_markets(host, &client).await;
    let events = check_events(&client, &markets).await;
    check_market_filters(&client, &markets).await;
    check_event_filters(&client, &events).await;
    check_search(&client, &events).await;
    check_empty(&client).await;
}

fn ids<'m>(rows: impl IntoIterator<Item = &'m Market>) -> BTreeSet<String> {
    rows.into_iter().map(|row| row.id.clone()).collect()
}

fn open(markets: &[Market]) -> impl Iterator<Item = &Market> {
    markets.iter().filter(|market| market.closed == Some(false))
}

/// Returns all markets, each of which is compared.
async fn check_markets(host: &str, client: &Client) -> Vec<Market> {
    let mut markets = Vec::new();
    for closed in [false, true] {
        for offset in (0..).step_by(3) {
            let request = MarketsRequest::builder().closed(closed).limit(3).offset(offset);
            let page = client.markets(&request.build()).await.unwrap();
            let is_last = page.len() < 3;
            markets.extend(page);
            if is_last {
                break;
            }
        }
    }
    let book = clob::Client::new(host, clob::Config::builder().build()).unwrap();
    let long = book.markets(None).await.unwrap().data;
    assert_eq!(markets.len(), long.len());
    assert_eq!(ids(&markets).len(), long.len(), "ids differ");
    for market in &markets {
        let long = long.iter().find(|it| it.condition_id == market.condition_id).unwrap();
        assert_eq!(market.question.as_ref(), Some(&long.question));
        assert_eq!(market.slug.as_ref(), Some(&long.market_slug));
        assert_eq!(market.end_date, long.end_date_iso);
        assert_eq!(market.active, Some(long.active));
        assert_eq!(market.closed, Some(long.closed));
        assert_eq!(market.archived, Some(long.archived));
        assert_eq!(market.accepting_orders, Some(long.accepting_orders));
        assert_eq!(market.enable_order_book, Some(long.enable_order_book));
        assert_eq!(market.order_price_min_tick_size, Some(long.minimum_tick_size));
        assert_eq!(market.order_min_size, Some(long.minimum_order_size));
        assert_eq!(market.neg_risk, Some(long.neg_risk));
        let tokens = || long.tokens.iter();
        assert_eq!(market.outcomes, Some(tokens().map(|it| it.outcome.clone()).collect()));
        assert_eq!(market.clob_token_ids, Some(tokens().map(|it| it.token_id).collect()));
        if let Some(prices) = &market.outcome_prices {
            assert_eq!(*prices, tokens().map(|it| it.price).collect::<Vec<Decimal>>());
        }
        assert_eq!(market.volume, market.volume_num);
        let by_id = MarketByIdRequest::builder().id(&*market.id).include_tag(true).build();
        assert_eq!(client.market_by_id(&by_id).await.unwrap(), *market);
        let slug = market.slug.as_deref().unwrap();
        let by_slug = MarketBySlugRequest::builder().slug(slug).build();
        assert_eq!(client.market_by_slug(&by_slug).await.unwrap(), *market);
        let tags = MarketTagsRequest::builder().id(&*market.id).build();
        assert_eq!(client.market_tags(&tags).await.unwrap(), []);
    }
    markets
}

/// Returns all events, which have all the markets.
async fn check_events(client: &Client, markets: &[Market]) -> Vec<Event> {
    let events = client.events(&EventsRequest::builder().limit(500).build()).await.unwrap();
    let listed = events.iter().flat_map(|event| event.markets.as_ref().unwrap());
    assert_eq!(ids(listed), ids(markets));
    for event in &events {
        let by_id = EventByIdRequest::builder().id(&*event.id).include_chat(true).build();
        assert_eq!(client.event_by_id(&by_id).await.unwrap(), *event);
        let slug = event.slug.as_deref().unwrap();
        let by_slug = EventBySlugRequest::builder().slug(slug).include_template(true).build();
        assert_eq!(client.event_by_slug(&by_slug).await.unwrap(), *event);
        let tags = EventTagsRequest::builder().id(&*event.id).build();
        assert_eq!(client.event_tags(&tags).await.unwrap(), []);
        for market in event.markets.as_ref().unwrap() {
            let of_market = markets.iter().find(|it| it.id == market.id).unwrap();
            let named = &of_market.events.as_ref().unwrap()[0];
            assert_eq!(
                (&named.id, &named.slug, &named.title),
                (&event.id, &event.slug, &event.title)
            );
        }
    }
    events
}

fn time(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

async fn check_market_filters(client: &Client, markets: &[Market]) {
    let all = ids(open(markets));
    let two: Vec<&Market> = open(markets).take(2).collect();
    let strings = |of: fn(&Market) -> String| two.iter().map(|it| of(it)).collect::<Vec<_>>();
    let expected = ids(two.iter().copied());
    let slugs = strings(|it| it.slug.clone().unwrap());
    assert_eq!(found!(client.markets(MarketsRequest { slug: slugs })), expected);
    let names = strings(|it| it.id.clone());
    assert_eq!(found!(client.markets(MarketsRequest { id: names })), expected);
    let conditions = two.iter().map(|it| it.condition_id.unwrap()).collect();
    assert_eq!(found!(client.markets(MarketsRequest { condition_ids: conditions })), expected);
    let tokens = two.iter().map(|it| it.clob_token_ids.as_ref().unwrap()[1]).collect();
    assert_eq!(found!(client.markets(MarketsRequest { clob_token_ids: tokens })), expected);
    let volume = two[1].volume_num.unwrap();
    let more = ids(open(markets).filter(|it| it.volume_num >= Some(volume)));
    assert_eq!(found!(client.markets(MarketsRequest { volume_num_min: volume })), more);
    let less = open(markets).filter(|it| it.volume_num.is_some_and(|it| it <= volume));
    assert_eq!(found!(client.markets(MarketsRequest { volume_num_max: volume })), ids(less));
    let dated = ids(open(markets).filter(|it| it.end_date.is_some()));
    let (first, last) = (time("1970-01-02T00:00:00Z"), time("2200-01-01T00:00:00Z"));
    assert_eq!(found!(client.markets(MarketsRequest { end_date_min: first })), dated);
    assert_eq!(found!(client.markets(MarketsRequest { end_date_max: last })), dated);
    unknown!(client.markets(MarketsRequest {
        end_date_min: last,
        end_date_max: first,
        market_maker_address: vec![Address::ZERO],
        liquidity_num_min: Decimal::ONE,
        liquidity_num_max: Decimal::ONE,
        start_date_min: first,
        start_date_max: last,
        tag_id: "1",
        cyom: false,
        uma_resolution_status: "proposed".to_owned(),
        game_id: "1".to_owned(),
        sports_market_types: vec!["totals".to_owned()],
        rewards_min_size: Decimal::ONE,
        question_ids: vec![B256::ZERO],
    }));
    ignored!(
        all,
        client.markets(MarketsRequest {
            closed: false,
            related_tags: true,
            include_tag: true,
            ascending: true,
            order: "startDate".to_owned(),
            offset: 0,
        })
    );
    let request = MarketsRequest::builder().order("volumeNum".to_owned()).ascending(true);
    let sorted = client.markets(&request.limit(500).build()).await.unwrap();
    assert!(sorted.iter().filter_map(|it| it.volume_num).is_sorted());
}

async fn check_event_filters(client: &Client, events: &[Event]) {
    let ids = |rows: Vec<&Event>| rows.iter().map(|row| row.id.clone()).collect::<BTreeSet<_>>();
    let all = ids(events.iter().collect());
    let two = vec![&events[0], &events[1]];
    let slugs = two.iter().map(|it| it.slug.clone().unwrap()).collect();
    assert_eq!(found!(client.events(EventsRequest { slug: slugs })), ids(two.clone()));
    let names = two.iter().map(|it| it.id.clone()).collect();
    assert_eq!(found!(client.events(EventsRequest { id: names })), ids(two.clone()));
    for closed in [false, true] {
        let expected = events.iter().filter(|it| it.closed == Some(closed)).collect();
        assert_eq!(found!(client.events(EventsRequest { closed: closed })), ids(expected));
    }
    let volume = two[1].volume.unwrap();
    let more = events.iter().filter(|it| it.volume >= Some(volume)).collect();
    assert_eq!(found!(client.events(EventsRequest { volume_min: volume })), ids(more));
    let less = events.iter().filter(|it| it.volume.is_some_and(|it| it <= volume)).collect();
    assert_eq!(found!(client.events(EventsRequest { volume_max: volume })), ids(less));
    let dated = ids(events.iter().filter(|it| it.end_date.is_some()).collect());
    let (first, last) = (time("1970-01-02T00:00:00Z"), time("2200-01-01T00:00:00Z"));
    assert_eq!(found!(client.events(EventsRequest { end_date_min: first })), dated);
    assert_eq!(found!(client.events(EventsRequest { end_date_max: last })), dated);
    unknown!(client.events(EventsRequest {
        end_date_min: last,
        tag_id: "1",
        exclude_tag_id: vec!["1".to_owned()],
        tag_slug: "x".to_owned(),
        archived: true,
        active: false,
        featured: true,
        cyom: true,
        recurrence: "daily".to_owned(),
        liquidity_min: Decimal::ONE,
        liquidity_max: Decimal::ONE,
        start_date_min: first,
        start_date_max: last,
    }));
    ignored!(
        all,
        client.events(EventsRequest {
            active: true,
            archived: false,
            related_tags: true,
            include_chat: true,
            include_template: true,
            ascending: true,
            order: vec!["startDate".to_owned(), "id".to_owned()],
            offset: 0,
        })
    );
}

async fn check_search(client: &Client, events: &[Event]) {
    let title = events[0].title.as_deref().unwrap();
    let request = SearchRequest::builder().q(title).limit_per_type(100).page(1).build();
    let found = client.search(&request).await.unwrap();
    let (events_found, pages) = (found.events.unwrap(), found.pagination.unwrap());
    assert!(events_found.contains(&events[0]));
    assert_eq!(pages.has_more, Some(false));
    assert_eq!((found.tags.unwrap(), found.profiles.unwrap()), (vec![], vec![]));
}

async fn check_empty(client: &Client) {
    let all = Some(RelatedTagsStatus::All);
    assert_eq!(client.teams(&TeamsRequest::default()).await.unwrap(), []);
    assert_eq!(client.sports().await.unwrap(), []);
    assert!(client.sports_market_types().await.unwrap().market_types.is_empty());
    assert_eq!(client.tags(&TagsRequest::default()).await.unwrap(), []);
    let by_id = RelatedTagsByIdRequest::builder().id("1").maybe_status(all).build();
    let by_slug = RelatedTagsBySlugRequest::builder().slug("x").omit_empty(true).build();
    assert_eq!(client.related_tags_by_id(&by_id).await.unwrap(), []);
    assert_eq!(client.related_tags_by_slug(&by_slug).await.unwrap(), []);
    assert_eq!(client.tags_related_to_tag_by_id(&by_id).await.unwrap(), []);
    assert_eq!(client.tags_related_to_tag_by_slug(&by_slug).await.unwrap(), []);
    assert_eq!(client.series(&SeriesListRequest::default()).await.unwrap(), []);
    let kind = ParentEntityType::Event;
    let comments = CommentsRequest::builder().parent_entity_type(kind).parent_entity_id("1");
    assert_eq!(client.comments(&comments.build()).await.unwrap(), []);
    let thread = CommentsByIdRequest::builder().id("1").build();
    assert_eq!(client.comments_by_id(&thread).await.unwrap(), []);
    let user = CommentsByUserAddressRequest::builder().user_address(Address::ZERO).build();
    assert_eq!(client.comments_by_user_address(&user).await.unwrap(), []);
    for refused in [
        client.tag_by_id(&TagByIdRequest::builder().id("1").build()).await.err(),
        client.tag_by_slug(&TagBySlugRequest::builder().slug("x").build()).await.err(),
        client.series_by_id(&SeriesByIdRequest::builder().id("1").build()).await.err(),
        client
            .public_profile(&PublicProfileRequest::builder().address(Address::ZERO).build())
            .await
            .err(),
    ] {
        assert!(refused.unwrap().to_string().contains("not found"));
    }
}
