class Program_weight_tensor_meta_embed_weight:
    name = "embed_weight"
    original_name = "embed.weight"
    shape = [7, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.14205628633499146
    std = 0.7657840847969055
    data = [-1.1611032485961914, 0.7084325551986694, 0.8743818402290344, -0.7617226839065552, -1.4471306800842285, -0.8121510148048401, -1.8010351657867432, -1.0053507089614868, -0.1945568323135376, -0.4873066246509552, -0.07424956560134888, 0.17696481943130493, 0.36694031953811646, 0.22071292996406555, 0.8743818402290344, -0.020365223288536072, -0.33654850721359253, -0.05937182903289795, -0.02344191074371338, -0.7901716232299805, -0.31343111395835876, 0.8743818402290344, -0.5649826526641846, 0.8743818402290344, -0.8514105081558228, 0.011624008417129517, 0.8701699376106262, 0.8743818402290344]


class Program_weight_tensor_meta_fc_weight:
    name = "fc_weight"
    original_name = "fc.weight"
    shape = [3, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = 0.09734223037958145
    std = 0.2185981422662735
    data = [0.1881958544254303, 0.03637910634279251, 0.29519742727279663, 0.4074110984802246, 0.3391900360584259, 0.08961442112922668, 0.2571273446083069, 0.17371860146522522, -0.2860015332698822, -0.03413020819425583, -0.18508699536323547, -0.11350834369659424]


class Program_weight_tensor_meta_fc_bias:
    name = "fc_bias"
    original_name = "fc.bias"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.2672940492630005
    std = 0.13505765795707703
    data = [-0.3110017478466034, -0.1157953143119812, -0.37508511543273926]


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
    mean = -0.18586765229701996
    std = 0.9727182388305664
    data = [-0.02503305673599243, 1.0285667181015015, 0.06815371662378311, -1.2771621942520142, -0.44122934341430664, -1.4966611862182617, -0.7855549454689026, 2.302516460418701, 0.16247934103012085, -0.4351142644882202, -0.05989144742488861, 0.5321069955825806, -0.25678688287734985, -0.27045297622680664, -0.7100944519042969, -1.2589160203933716, 1.4198323488235474, -0.18962012231349945, -0.38421308994293213, -1.640278697013855]


class Program_weight_tensor_meta_constant_0:
    name = "constant_0"
    original_name = "constant_0"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = 1.654617428779602
    std = 0.2969001531600952
    data = [1.8705672025680542, 1.7772372961044312, 1.3160476684570312]


class Program_weight_tensor_meta_tensor_constant0:
    name = "tensor_constant0"
    original_name = "tensor_constant0"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = 1.1666666269302368
    std = 0.7637625932693481
    data = [0.5, 1.0, 2.0]
