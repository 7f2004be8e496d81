//! Orders.

use super::{PAGE_ROWS, Page, only_order, read_cursor, read_market};
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::operations::clob::{Awaited, request};
use crate::http::operations::orders::list::{read_cursor as parse_cursor, write_cursor};
use crate::http::reply::Reply;
use crate::rows::Party;
use crate::rows::clob_order::OrderRow;
use paperbourse_core::engine::order::terms::OrderStatus;
use paperbourse_core::engine::state::view::{ListedOrder, OrderCursor, OrderFilter};
use paperbourse_exchange::service::{self, OrdersRequest, ServiceError};

/// Lists the open orders, newest first.
pub(in crate::http::operations::clob) async fn list(call: &Call<'_>) -> Awaited {
    let Some(request) = read_orders(call.head.uri.query())? else {
        return Ok(Reply::ok(&Page::<OrderRow<'_>>::new(Vec::new(), None)));
    };
    let found = call.service().orders(&call.caller, request, call.context).await?;
    let party = Party::of(call);
    let rows = found.orders.iter().map(|listed| OrderRow::of(listed, &party)).collect();
    Ok(Reply::ok(&Page::new(rows, found.next.map(write_cursor))))
}

/// Returns one order. The venue shows only open ones; this server also those that have ended.
pub(in crate::http::operations::clob) async fn get(call: &Call<'_>) -> Awaited {
    let listed = find(call, &call.parameter()).await?.ok_or(ClobError::NO_ORDER)?;
    Ok(Reply::ok(&OrderRow::of(&listed, &Party::of(call))))
}

/// Returns the order of the caller with this id.
pub(in crate::http::operations::clob) async fn find(
    call: &Call<'_>,
    id: &str,
) -> Result<Option<ListedOrder>, ServiceError> {
    let request = request_of(Some(id), OrderFilter::default(), OrderCursor::START);
    let found = call.service().orders(&call.caller, request, call.context).await?;
    Ok(found.orders.into_iter().next())
}

/// Reads the filter and the page; `None` after the last page.
fn read_orders(query: Option<&str>) -> Result<Option<OrdersRequest>, ClobError> {
    let [market_id, token_id] = read_market(query)?;
    let status = Some(OrderStatus::Pending);
    let filter = OrderFilter { market_id, token_id, status, ..OrderFilter::default() };
    let id = request::filled(query, "id");
    let after = |offset| (OrderCursor::START, offset);
    let from = read_cursor(query, after, |text| Some((parse_cursor(text)?, 0)))?;
    Ok(from.map(|(from, offset)| OrdersRequest {
        page: service::Page { limit: PAGE_ROWS, offset },
        ..request_of(id.as_deref(), filter, from)
    }))
}

fn request_of(id: Option<&str>, filter: OrderFilter, from: OrderCursor) -> OrdersRequest {
    let page = service::Page { limit: PAGE_ROWS, offset: 0 };
    OrdersRequest { only: id.map(only_order), filter, from, page }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::operations::trade::tests::receipt;
    use paperbourse_clob::signature::address::Address;
    use paperbourse_core::engine::order::idempotency::NameHash;
    use paperbourse_core::engine::order::order_state::{End, OrderState, Progress};
    use paperbourse_core::engine::order::receipt::OrderReceipt;
    use paperbourse_core::engine::order::terms::{EndReason, OrderKind, Terms, TimeInForce};
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::money::{Price, Shares, Usd};
    use paperbourse_exchange::service::OnlyOrder;

    const DIGEST: &str = "0x00000000000000000000000000000000000000000000000000000000deadbeef";

    #[test]
    fn open_orders_are_filtered() {
        let open = OrderFilter { status: Some(OrderStatus::Pending), ..OrderFilter::default() };
        let all = request_of(None, open.clone(), OrderCursor::START);
        assert_eq!(read_orders(None), Ok(Some(all.clone())));
        assert_eq!(read_orders(Some("next_cursor=MA==&limit=x&id=")), Ok(Some(all)));
        let query = format!("id={DIGEST}&market={DIGEST}&asset_id=7&next_cursor=o9");
        let expected = OrdersRequest {
            only: Some(OnlyOrder::Named(NameHash::of_order(DIGEST))),
            filter: OrderFilter {
                market_id: Some(DIGEST.into()),
                token_id: Some("7".into()),
                ..open.clone()
            },
            from: OrderCursor::Open { before: 9 },
            page: service::Page { limit: 100, offset: 0 },
        };
        assert_eq!(read_orders(Some(&query)), Ok(Some(expected)));
        let skipping = OrdersRequest {
            page: service::Page { limit: 100, offset: 300 },
            ..request_of(None, open.clone(), OrderCursor::START)
        };
        assert_eq!(read_orders(Some("next_cursor=MzAw")), Ok(Some(skipping)));
        assert_eq!(read_orders(Some("next_cursor=LTE=")), Ok(None));
        assert_eq!(read_orders(Some("next_cursor=9")), Err(ClobError::INVALID_PAYLOAD));
        assert_eq!(read_orders(Some("market=0x9")), Err(ClobError::INVALID_MARKET));
    }

    /// An order for 25 shares at 0.53, of which it took ten when it was placed.
    fn order(time_in_force: TimeInForce, end: Option<EndReason>) -> OrderReceipt {
        let mut receipt = receipt();
        let fill = &receipt.fill;
        let progress = Progress::default();
        let progress = progress.after(fill.quantity, fill.notional, fill.fee, fill.at).unwrap();
        let kind = OrderKind::Limit;
        let (quantity, price) = (Shares::from_micros(25_000_000), Price::from_micros(530_000));
        receipt.client_order_id = Some(DIGEST.into());
        receipt.order_state = Some(Box::new(OrderState {
            terms: Terms::of_order(kind, time_in_force, quantity, Some(price)),
            progress,
            end: end.map(|reason| End { reason, at: receipt.fill.at }),
            awaits_book: false,
            is_delayed: false,
        }));
        receipt
    }

    /// The same order if it took nothing.
    fn untouched(time_in_force: TimeInForce, end: Option<EndReason>) -> OrderReceipt {
        let mut receipt = order(time_in_force, end);
        (receipt.fill.quantity, receipt.fill.notional) = (Shares::ZERO, Usd::ZERO);
        receipt.order_state.as_mut().unwrap().progress = Progress::default();
        receipt
    }

    fn shown(receipt: OrderReceipt) -> serde_json::Value {
        let wallet = Address::parse("0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266").unwrap();
        let party = Party { owner: "0b8a2f6e-1c3d-4e5f-8a9b-0123456789ab", wallet };
        let listed = ListedOrder { receipt, token_id: "77".into() };
        serde_json::to_value(OrderRow::of(&listed, &party)).unwrap()
    }

    #[test]
    fn an_order_has_every_key_that_clients_need() {
        let until = TimeInForce::GoodTilDate(Timestamp::from_seconds(1_784_580_000));
        let wallet = Address::parse("0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266").unwrap();
        let party = Party { owner: "0b8a2f6e-1c3d-4e5f-8a9b-0123456789ab", wallet };
        let placed_elsewhere =
            OrderReceipt { client_order_id: Some("mine".into()), ..order(until, None) };
        let listed = [order(until, None), placed_elsewhere, receipt()]
            .map(|receipt| ListedOrder { receipt, token_id: "77".into() });
        let rows = listed.iter().map(|listed| OrderRow::of(listed, &party)).collect();
        let page = Page::new(rows, Some(write_cursor(OrderCursor::Open { before: 7 })));
        insta::assert_snapshot!(serde_json::to_string_pretty(&page).unwrap());
    }

    #[test]
    fn an_order_has_the_venues_status() {
        let rests = TimeInForce::GoodTilCancelled;
        let mut delayed = untouched(TimeInForce::FillOrKill, None);
        delayed.order_state.as_mut().unwrap().is_delayed = true;
        let [at_once, at_most] = [TimeInForce::FillOrKill, TimeInForce::FillAndKill];
        for (receipt, expected) in [
            (receipt(), "MATCHED"),
            (order(rests, None), "LIVE"),
            (delayed, "DELAYED"),
            (order(rests, Some(EndReason::User)), "CANCELED"),
            (order(rests, Some(EndReason::Heartbeat)), "CANCELED"),
            (order(rests, Some(EndReason::GtdExpired)), "CANCELED"),
            (order(rests, Some(EndReason::Resolved)), "CANCELED_MARKET_RESOLVED"),
            (untouched(at_once, Some(EndReason::FokNotFilled)), "INVALID"),
            (untouched(at_most, Some(EndReason::FakNotFilled)), "INVALID"),
            (order(at_most, Some(EndReason::FakNotFilled)), "MATCHED"),
        ] {
            assert_eq!(shown(receipt)["status"], expected);
        }
    }
}
