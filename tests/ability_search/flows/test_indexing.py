async def test_x(network):
    a = await network.call("search-index", collection="docs", documents=[{"source":"a","title":"A","content":"hello world"}])
    print(a)
    print(network.calls[-3:])
    b = await network.call("search-query", collection="docs", query="hello")
    print(b)
