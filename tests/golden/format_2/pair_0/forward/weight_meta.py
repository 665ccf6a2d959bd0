class Program_weight_tensor_meta_embed_weight:
    name = "embed_weight"
    original_name = "embed.weight"
    shape = [7, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.2624821364879608
    std = 0.7812994718551636
    data = [-0.5327460765838623, -0.49303412437438965, -0.2251729667186737, 0.8743818402290344, 0.12133345007896423, -0.8551138639450073, -1.4126389026641846, 0.8743818402290344, -0.3629968762397766, -1.4266548156738281, -0.7102819681167603, -1.5886173248291016, -1.7871770858764648, -1.0918283462524414, -0.8403192162513733, 0.3907518982887268, -0.04763709008693695, -0.28513026237487793, 0.23501870036125183, -0.37701284885406494, 0.3113279938697815, 0.8743818402290344, 0.36271995306015015, 0.8743818402290344, -0.3700048625469208, 0.7816422581672668, -0.5755727291107178, -0.06788241863250732]


class Program_weight_tensor_meta_fc_weight:
    name = "fc_weight"
    original_name = "fc.weight"
    shape = [3, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = 0.13449886441230774
    std = 0.24946250021457672
    data = [0.2700761556625366, -0.3405742049217224, 0.37093016505241394, 0.37590378522872925, -0.27481186389923096, 0.3941403925418854, 0.07361803948879242, 0.027750186622142792, 0.1299857646226883, 0.4024297595024109, 0.11313071101903915, 0.07140754163265228]


class Program_weight_tensor_meta_fc_bias:
    name = "fc_bias"
    original_name = "fc.bias"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.2900857925415039
    std = 0.09108078479766846
    data = [-0.27530568838119507, -0.38765275478363037, -0.20729897916316986]


class Program_weight_tensor_meta_seen:
    name = "seen"
    original_name = "seen"
    shape = []
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [0]


class Program_weight_tensor_meta_ids:
    name = "ids"
    original_name = "ids"
    shape = [5]
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [0, 3, 6, 3, 1]


class Program_weight_tensor_meta_x:
    name = "x"
    original_name = "x"
    shape = [4, 5]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.31731465458869934
    std = 0.7967665791511536
    data = [-1.002359390258789, -1.3865736722946167, -1.072798728942871, 0.8199136853218079, -1.332600712776184, -1.3143048286437988, -1.0572471618652344, -0.580638587474823, -0.7745752930641174, 0.12924286723136902, -0.9136242866516113, 0.22072243690490723, -0.38670194149017334, -0.2888187766075134, 1.3980646133422852, 0.5546228885650635, 0.32226476073265076, 0.49699074029922485, -0.1397070735692978, -0.03816474974155426]


class Program_weight_tensor_meta_tensor_constant0:
    name = "tensor_constant0"
    original_name = "tensor_constant0"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = 1.1666666269302368
    std = 0.7637625932693481
    data = [0.5, 1.0, 2.0]
