def body():
    return "<h1>x</h1>", [], []
