"""Places an order with the client that was generated in the folder named first, and reads it back,
with the key named second."""

import os
import sys

folder, key = sys.argv[1:]
sys.path.insert(0, folder)

from generated import AuthenticatedClient  # noqa: E402
from generated.api.markets import get_v1_markets  # noqa: E402
from generated.api.orders import (  # noqa: E402
    delete_v1_orders_order_id,
    get_v1_orders_order_id,
    post_trade,
    post_v1_orders,
)
from generated.models import OrderRequest, TradeRequest  # noqa: E402

client = AuthenticatedClient(
    base_url=os.environ["PAPERBOURSE_URL"],
    token=key,
    prefix="",
    auth_header_name="X-API-Key",
    raise_on_unexpected_status=True,
)
market = get_v1_markets.sync(client=client)[0]

trade = post_trade.sync(
    client=client,
    body=TradeRequest(
        market_id=market.condition_id,
        outcome=market.outcomes[0],
        side="BUY",
        quantity=5,
    ),
)
read = get_v1_orders_order_id.sync(trade.order_id, client=client)
assert (read.status, read.filled_quantity) == ("FILLED", "5"), read

placed = post_v1_orders.sync(
    client=client,
    body=OrderRequest.from_dict({
        "market_id": market.condition_id,
        "outcome": market.outcomes[0],
        "side": "BUY",
        "order_type": "limit",
        "quantity": "10",
        "price": "0.01",
    }),
)
read = get_v1_orders_order_id.sync(placed.order_id, client=client)
assert (read.status, read.quantity) == ("PENDING", "10"), read
assert delete_v1_orders_order_id.sync(placed.order_id, client=client).status == "CANCELLED"
