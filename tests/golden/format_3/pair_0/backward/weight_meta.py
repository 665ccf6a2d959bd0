class Program_weight_tensor_meta_tanh:
    name = "tanh"
    original_name = "tanh"
    shape = [5, 3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.39299851655960083
    std = 0.1779051274061203
    data = [-0.09556199610233307, -0.45013245940208435, -0.4841257929801941, -0.38098663091659546, -0.36626845598220825, -0.666908860206604, -0.5816954970359802, -0.1458524763584137, -0.17614784836769104, -0.35195186734199524, -0.47586768865585327, -0.6226140260696411, -0.1687648892402649, -0.49418336153030396, -0.4339161217212677]


class Program_weight_tensor_meta_fc_weight:
    name = "fc_weight"
    original_name = "fc.weight"
    shape = [3, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = 0.13449886441230774
    std = 0.24946250021457672
    data = [0.2700761556625366, -0.3405742049217224, 0.37093016505241394, 0.37590378522872925, -0.27481186389923096, 0.3941403925418854, 0.07361803948879242, 0.027750186622142792, 0.1299857646226883, 0.4024297595024109, 0.11313071101903915, 0.07140754163265228]


class Program_weight_tensor_meta_add_141:
    name = "add_141"
    original_name = "add_141"
    shape = [5, 4]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.3442125916481018
    std = 0.5501880645751953
    data = [-0.5780529379844666, -0.6296442151069641, -0.3642972707748413, 0.6817110776901245, -1.4553124904632568, -0.9405450820922852, -0.47058919072151184, 0.3228696584701538, -0.4936964511871338, 0.34582433104515076, -0.4540374279022217, 0.07931491732597351, -0.9150199890136719, -0.8713282346725464, -0.5953582525253296, 0.20974873006343842, -0.25055575370788574, -0.5022259950637817, -0.5396150946617126, 0.536557674407959]


class Program_weight_tensor_meta_ids:
    name = "ids"
    original_name = "ids"
    shape = [5]
    dtype = "torch.int64"
    device = "cpu"
    mean = None
    std = None
    data = [0, 3, 6, 3, 1]


class Program_weight_tensor_meta_tangent_output_logits:
    name = "tangent_output_logits"
    original_name = "output.logits"
    shape = [5, 3]
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.16621097922325134
    std = 1.0648784637451172
    data = [-1.127929925918579, -0.1445312798023224, 0.6132813692092896, 0.7666017413139343, -0.002929688198491931, -1.5117191076278687, -1.7412112951278687, -1.9042973518371582, 0.027343757450580597, 0.20214848220348358, 0.9267580509185791, -1.006836175918579, 1.220703363418579, -0.10449220985174179, 1.2939456701278687]


class Program_weight_tensor_meta_tangent_output_loss:
    name = "tangent_output_loss"
    original_name = "output.loss"
    shape = []
    dtype = "torch.float32"
    device = "cpu"
    mean = -0.5449219942092896
    std = 0.0
    data = [-0.5449219942092896]


class Program_weight_tensor_meta_constant_0:
    name = "constant_0"
    original_name = "backward.constant_0"
    shape = [3]
    dtype = "torch.float32"
    device = "cpu"
    mean = 1.1666666269302368
    std = 0.7637625932693481
    data = [0.5, 1.0, 2.0]
